# SPDX-License-Identifier: Apache-2.0
"""A package, so that the names of its packages begin with it."""
