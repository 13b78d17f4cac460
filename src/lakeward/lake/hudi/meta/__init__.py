# SPDX-License-Identifier: Apache-2.0
"""A Hudi table's own words: properties, timeline, what instants say, columns, which files are whose."""
