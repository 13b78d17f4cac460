# SPDX-License-Identifier: Apache-2.0
"""Rows like TPC-H's lineitem, from a seed, and the wide rows of the small-batches bench."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

COLUMNS = (
    "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey INT, l_linenumber INT, l_quantity DOUBLE, l_extendedprice DOUBLE, "
    "l_discount DOUBLE, "
    "l_tax DOUBLE, l_returnflag STRING, l_linestatus STRING, l_shipdate DATE, l_shipmode STRING, l_comment STRING"
)
FLAGS, STATUSES = ("A", "N", "R"), ("F", "O")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
WORDS = (
    "quickly",
    "final",
    "deposits",
    "furiously",
    "ironic",
    "packages",
    "sleep",
    "carefully",
    "bold",
    "requests",
    "haggle",
    "regular",
)


def lineitem(start: int, count: int, seed: int = 1) -> pa.Table:
    chance = np.random.default_rng([seed, start])
    keys = np.arange(start, start + count)
    quantity = chance.integers(1, 51, count)
    price = (chance.integers(90_000, 210_000, count) * quantity / 100).round(2)
    words = np.array(WORDS)
    comments = [" ".join(row) for row in words[chance.integers(0, len(WORDS), (count, 3))]]
    return pa.table(
        {
            "l_orderkey": keys // 4,
            "l_partkey": chance.integers(1, 200_000, count),
            "l_suppkey": pa.array(chance.integers(1, 10_000, count), pa.int32()),
            "l_linenumber": pa.array(keys % 4 + 1, pa.int32()),
            "l_quantity": quantity.astype(float),
            "l_extendedprice": price,
            "l_discount": chance.integers(0, 11, count) / 100,
            "l_tax": chance.integers(0, 9, count) / 100,
            "l_returnflag": _picked(chance, FLAGS, count),
            "l_linestatus": _picked(chance, STATUSES, count),
            "l_shipdate": pa.array(8_000 + chance.integers(0, 2_500, count), pa.int32()).cast(pa.date32()),
            "l_shipmode": _picked(chance, MODES, count),
            "l_comment": pa.array(comments),
        }
    )


def _picked(chance: np.random.Generator, values: tuple[str, ...], count: int) -> pa.Array:
    return pa.array(values).take(pa.array(chance.integers(0, len(values), count)))


WIDE = 23
WIDE_COLUMNS = "id BIGINT, kind STRING, at TIMESTAMP(3), " + ", ".join(f"v{n} DOUBLE" for n in range(WIDE - 3))


def wide(start: int, count: int) -> pa.Table:
    """23 columns, as in DuckLake's published case."""
    chance = np.random.default_rng(start)
    ids = np.arange(start, start + count)
    at = pa.array(ids * 1_000 + 1_700_000_000_000).cast(pa.timestamp("ms"))
    values = {f"v{n}": chance.random(count) for n in range(WIDE - 3)}
    return pa.table({"id": ids, "kind": pa.array([f"k{i % 7}" for i in ids]), "at": at, **values})
