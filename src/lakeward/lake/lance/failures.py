# SPDX-License-Identifier: Apache-2.0
"""Errors of the warehouse and of Lance's library as lake errors."""

from __future__ import annotations

from lakeward.lake.core import failures


def is_missing(error: Exception) -> bool:
    """Does the library say so of a file or a version?"""
    return "not found" in str(error).lower()


lake_errors = failures.lake_errors("lance", RuntimeError, is_transient=is_missing)
