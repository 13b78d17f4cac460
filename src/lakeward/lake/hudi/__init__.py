# SPDX-License-Identifier: Apache-2.0
"""Apache Hudi as a lake format: its files and its timeline, written and read here; rounds need no Java."""

from __future__ import annotations

from lakeward.lake.core import failures

lake_errors = failures.lake_errors("hudi")
