# SPDX-License-Identifier: Apache-2.0
"""Delta tables in a folder or bucket: data files, vectors and log entries are written here, without a JVM."""

from __future__ import annotations

from lakeward.lake.core import failures

lake_errors = failures.lake_errors("delta")
