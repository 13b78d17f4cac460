# SPDX-License-Identifier: Apache-2.0
"""Delta tables in a local folder: data files, vectors and the log's entries are written here, without a JVM."""

from __future__ import annotations

from lakeward.lake.core import failures

lake_errors = failures.lake_errors("delta")
