# SPDX-License-Identifier: Apache-2.0
"""Compares the tables of a Postgres source on both sides at one LSN.

The ingest process is held first. A temporary slot then names an LSN together with a snapshot of exactly the
transactions below it; the ingest process goes on to that LSN and is held there while both sides are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakeward.client import Client
from lakeward.source.postgres.origin import Origin
from lakeward.source.postgres.snapshot import SnapshotReader
from lakeward.source.postgres.tables import IngestedTable, PgTables

MOST_EXAMPLES = 5


@dataclass
class TableComparison:
    """`missing`, `surplus` and `different` count keys; `examples` names some of them."""

    table: str
    to: str
    rows: int = 0
    missing: int = 0
    surplus: int = 0
    different: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.surplus or self.different)

    def note(self, words: str, key: tuple[Any, ...]) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"{words}: {', '.join(map(repr, key))}")


class MomentOfOrigin:
    """A snapshot of Postgres and the LSN that it stands for."""

    def __init__(self, origin: Origin, name: str) -> None:
        self._connection = origin.replication()
        with origin.translated(), self._connection.cursor() as cursor:
            cursor.execute(f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT')
            _, self.lsn, self.snapshot, _ = cursor.fetchone()

    def close(self) -> None:
        self._connection.close()


def compare_tables(origin: Origin, client: Client, config: Any, state: Any, snapshot: str) -> Iterator[TableComparison]:
    tables = PgTables(origin, client, config)
    with closing(SnapshotReader(origin, snapshot)) as reader:
        for name, body in state["tables"].items():
            yield _compare(tables, client, reader, name, IngestedTable(**body).to)


def _compare(tables: PgTables, client: Client, reader: SnapshotReader, name: str, to: str) -> TableComparison:
    result, table = TableComparison(name, to), tables.origin.table(name)
    if table is None:
        return result
    changed = tables.changed_table(name, to, table.columns, table.key)
    stored: dict[tuple[Any, ...], bytes] = {}
    with client.read(to, columns=changed.columns) as rows:
        for batch in rows:
            stored.update(_digests(pa.Table.from_batches([batch]), changed.columns, table.key))
    for steps in reader.chunks(table, changed, IngestedTable(to=to)):
        for step in steps:
            for key, digest in _digests(step.rows, changed.columns, table.key):
                result.rows += 1
                other = stored.pop(key, None)
                if other is None:
                    result.missing += 1
                    result.note(f"not in {to}", key)
                elif other != digest:
                    result.different += 1
                    result.note("different", key)
    result.surplus = len(stored)
    for key in list(stored)[:MOST_EXAMPLES]:
        result.note("not in Postgres", key)
    return result


def _digests(rows: pa.Table, names: tuple[str, ...], key: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    places = [names.index(name) for name in key]
    for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
        yield tuple(row[p] for p in places), hashlib.blake2b(repr(row).encode(), digest_size=12).digest()
