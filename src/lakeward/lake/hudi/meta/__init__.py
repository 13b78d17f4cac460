# SPDX-License-Identifier: Apache-2.0
"""Hudi's metadata: properties, timeline, instants, columns, file groups."""
