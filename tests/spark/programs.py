# SPDX-License-Identifier: Apache-2.0
"""Random programs of tests/property/union_program.py, read by Spark's own Parquet scan after every step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from lakeward.read.arrow import request_of
from lakeward.read.spark.batch import read_frame
from tests.property.union_program import Program, Rows, Step, iceberg_lake


def run_in_spark(spark: Any, steps: list[Step], **properties: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder), iceberg_lake(Path(folder)), **properties)

        def read_rows(path: str) -> Rows:
            frame, opened = read_frame(spark, program.world.plugin, request_of(path), program.world.open_lake)
            try:
                return [r.asDict() for r in frame.collect()]
            finally:
                opened.close()

        try:
            program.run(steps, read_rows)
        finally:
            program.world.close()
