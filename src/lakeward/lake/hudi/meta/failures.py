# SPDX-License-Identifier: Apache-2.0
"""Errors of the warehouse as lake errors."""

from __future__ import annotations

from lakeward.lake.core import failures

lake_errors = failures.lake_errors("hudi")
