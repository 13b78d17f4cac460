# SPDX-License-Identifier: Apache-2.0
"""Every kind of table that Fluss has, each growing step by step, with what the lake must hold of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakeward.model import TablePath
from lakeward.verify import verify_table
from tests.fluss.steps import DATABASE, Append, Delete, KvScan, MakePartition, MakeTable, Step, Upsert
from tests.fluss.world import SYSTEM, FlussWorld
from tests.kit.fluss.jars import fluss_version

DAYS = ("2026-11-14", "2026-11-15")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        ("name", pa.string()),
        ("score", pa.int32()),
    ]
)
Key = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    primary_key: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    is_daily: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


KINDS = (
    Kind(name="log"),
    Kind(name="keyed", bucket_keys=("id",)),
    Kind(name="daily", is_daily=True),
    Kind(name="pk", primary_key=("id",)),
    Kind(name="daily_pk", primary_key=("id", "day"), is_daily=True),
    *([] if fluss_version() == "0.9.1" else [Kind(name="counted", properties={"table.statistics.columns": "*"})]),
)
"""0.9.1 knows no statistics columns."""


class Grown:
    """One table of a kind. `world` may be another one after an upgrade of the cluster."""

    def __init__(self, kind: Kind, prefix: str, freshness: str) -> None:
        self.kind, self.name, self._freshness = kind, f"{prefix}{kind.name}", freshness
        self._rows: list[dict[str, Any]] = []
        self._by_key: dict[Key, dict[str, Any]] = {}

    @property
    def is_pk(self) -> bool:
        return bool(self.kind.primary_key)

    @property
    def expected(self) -> list[dict[str, Any]]:
        return list(self._by_key.values()) if self.is_pk else self._rows

    def make(self) -> list[Step]:
        made = MakeTable(
            name=self.name,
            schema=SCHEMA,
            primary_key=self.kind.primary_key,
            partition_keys=("day",) if self.kind.is_daily else (),
            bucket_keys=self.kind.bucket_keys,
            freshness=self._freshness,
            properties=self.kind.properties,
        )
        return [made, *(MakePartition(table=self.name, spec={"day": d}) for d in DAYS if self.kind.is_daily)]

    def grow(self, turn: int, count: int = 200) -> list[Step]:
        """Log tables get new rows; of a PK table rows are new, replaced, replaced twice, deleted, and deleted in
        the step that brought them.
        """
        if not self.is_pk:
            start = len(self._rows)
            rows = [_row(n, f"row {n} of turn {turn}") for n in range(start, start + count)]
            self._rows += rows
            return [Append(table=self.name, rows=pa.RecordBatch.from_pylist(rows, schema=SCHEMA), is_by_row=True)]
        changed = {_key(n): _row(n, f"turn {turn}") for n in range(turn, count + 40 * turn, 1 + turn % 3)}
        twice = {key: {**row, "name": f"twice in {turn}"} for key, row in list(changed.items())[::4]}
        gone = [key for key in {**self._by_key, **changed} if key[0] % 17 == turn % 17]
        merged = {**self._by_key, **changed, **twice}
        self._by_key = {key: row for key, row in merged.items() if key not in set(gone)}
        names = self.kind.primary_key
        return [
            Upsert(table=self.name, rows=list(changed.values())),
            Upsert(table=self.name, rows=list(twice.values())),
            Delete(table=self.name, keys=[{k: {"id": n, "day": day}[k] for k in names} for n, day in gone]),
        ]

    def check(self, world: FlussWorld) -> None:
        """Our reader gives the rows that were written, offsets have no gap, and `verify --deep` finds nothing."""
        rows = read_ours(world, self.name)
        assert counted(rows) == counted(self.expected), self.name
        if not self.is_pk:
            found = sorted((self._bucket(r), r["__offset"]) for r in rows)
            ends = world.ends(self.name)
            wanted = sorted(((b.partition, b.number), o) for b, end in ends.items() for o in range(end))
            assert found == wanted, (self.name, set(found) ^ set(wanted))
        certificate = verify_table(world.plugin, TablePath(DATABASE, self.name), deep=True)
        assert not certificate.all_findings, (self.name, [str(f) for f in certificate.all_findings])

    def _bucket(self, row: Mapping[str, Any]) -> tuple[str, int]:
        return (row["day"] if self.kind.is_daily else "", row["__bucket"])


def read_ours(world: FlussWorld, name: str) -> list[dict[str, Any]]:
    table, lake = world.table(name), world.lake(name)
    try:
        reader = lake.open_reader(table)
        head = reader.load_snapshot()
        assert head is not None
        return [
            row
            for batch in reader.scan(head.snapshot_id, columns=[*SCHEMA.names, *SYSTEM])
            for row in batch.to_pylist()
        ]
    finally:
        lake.connection.close()


def scan_kv(world: FlussWorld, name: str) -> list[dict[str, Any]]:
    (rows,) = world.produce(KvScan(table=name))
    return list(rows)


def counted(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset, system columns left out."""
    return Counter(tuple(r.get(c) for c in SCHEMA.names) for r in rows)


def _key(number: int) -> Key:
    return number, DAYS[number % 2]


def _row(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "day": DAYS[number % 2], "name": name, "score": -number}
