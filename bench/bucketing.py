# SPDX-License-Identifier: Apache-2.0
"""Rows per second and core that each bucket function assigns, beside the Rust bucket transform of pyiceberg-core."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from pyiceberg_core.transform import bucket as rust_bucket

from bench.report import Report
from lakeward.bucketing import assign
from lakeward.model import BucketFunction, parse_type

ROWS = 4_000_000
RUNS = 3
COUNT = 16


def million_rows_per_cpu_second(call: Callable[[], object], rows: int) -> float:
    """The best of a few runs, by CPU time: what one core does, also on a busy machine."""
    best = float("inf")
    for _ in range(RUNS):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return rows / best / 1e6


def keys() -> list[tuple[str, str, pa.Array, str | None]]:
    """Case, SQL type, keys, target."""
    chance = np.random.default_rng(7)
    return [
        ("bigint, growing ids", "BIGINT", pa.array(np.arange(ROWS) + 1_000_000_000), ">= 5"),
        ("bigint, any", "BIGINT", pa.array(chance.integers(-(2**63), 2**63 - 1, ROWS)), ">= 5"),
        ("string, 8 to 14 bytes", "STRING", pa.array([f"user-{i}" for i in range(ROWS // 8)]), None),
    ]


def main() -> None:
    report = Report("bucketing")
    for case, sql, column, target in keys():
        rows, kind = len(column), parse_type(sql)
        rust = million_rows_per_cpu_second(partial(rust_bucket, column, COUNT), rows)
        for function in BucketFunction:
            with report.measure() as cost:
                figure = million_rows_per_cpu_second(partial(assign, function, [column], [kind], COUNT), rows)
            report.add(
                f"{function}: {case}",
                figure=figure,
                unit="M rows/s per core",
                beside=rust,
                beside_what="pyiceberg-core's bucket transform",
                target=target,
                cost=cost,
            )
    report.finish()


if __name__ == "__main__":
    main()
