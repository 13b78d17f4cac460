# SPDX-License-Identifier: Apache-2.0
"""Lance tables: fragments and deletion files of our own, versions that the library builds and that we publish."""

from __future__ import annotations

from lakeward.lake.core import failures


def is_missing(error: Exception) -> bool:
    """Whether the library reports a file or a version as missing."""
    return isinstance(error, ValueError) and "not found" in str(error).lower()


lake_errors = failures.lake_errors("lance", RuntimeError, is_transient=is_missing)
