# SPDX-License-Identifier: Apache-2.0
"""What the parts of the hot store contract share: the fixture, tables, and the hooks through which a plugin's test
writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from lakeward.changelog import Fold, KeyedFold
from lakeward.model import (
    OFFSET,
    Bucket,
    Column,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.spi import HotStore

Row = dict[str, Any]
B0, B1 = Bucket("", 0), Bucket("", 1)
COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "score": "DOUBLE"}


class HotSuite:
    """A plugin's test class gives the fixture `store` and the hooks."""

    gaps: Mapping[str, str] = {}
    """Test name -> why this plugin does not pass it. Strict: a gap that closes must be taken off."""

    @pytest.fixture
    def store(self) -> Iterator[HotStore]:
        raise NotImplementedError("give an empty store")

    def create(self, store: HotStore, table: TableInfo) -> TableInfo:
        """Creates the table and returns it as the store knows it."""
        raise NotImplementedError

    def write(self, store: HotStore, table: TableInfo, bucket: Bucket, rows: Sequence[Row]) -> None:
        """Appends (log table) or upserts (PK table) rows into this bucket, as one batch, and returns when
        acknowledged.
        """
        raise NotImplementedError

    def delete(self, store: HotStore, table: TableInfo, bucket: Bucket, keys: Sequence[Row]) -> None:
        """Deletes rows by key, as one batch."""
        raise NotImplementedError

    def add_column(self, store: HotStore, table: TableInfo, column: Column) -> TableInfo:
        """Alters the table and returns it as it is then."""
        raise NotImplementedError

    def make_gap(self, store: HotStore, table: TableInfo, bucket: Bucket, end: int) -> None:
        """Moves the bucket's log end up to `end` without a record."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _declared_gaps(self, request: pytest.FixtureRequest) -> None:
        reason = self.gaps.get(request.node.originalname)
        if reason:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    def make_table(self, store: HotStore, name: str = "t", **options: Any) -> TableInfo:
        columns = options.pop("columns", COLUMNS)
        schema = Schema(columns=tuple(Column(name=n, type=parse_type(t)) for n, t in columns.items()))
        descriptor = TableDescriptor(schema=schema, bucket_count=2, **options)
        return self.create(
            store, TableInfo(path=TablePath("contract", name), table_id=new_table_id(), descriptor=descriptor)
        )


def row(number: int, name: str | None = None, **more: Any) -> Row:
    return {"id": number, "name": name if name is not None else f"row {number}", "score": number / 4, **more}


def read(
    store: HotStore, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
) -> list[Row]:
    """Records of a range as dicts, checked to be in offset order and inside the range."""
    rows = [r for batch in store.read_log(table, bucket, start, stop, columns) for r in batch.to_pylist()]
    offsets = [r[OFFSET] for r in rows]
    assert offsets == sorted(set(offsets)), "offsets ascend without doubles"
    assert all(start <= o < stop for o in offsets), "nothing outside the range"
    return rows


def fold(
    store: HotStore, table: TableInfo, bucket: Bucket, start: int, stop: int, below: dict[int, Row] | None = None
) -> dict[int, Row]:
    """Offset -> row: a range folded on top of the rows `below` it, the way a round or a union read does."""
    key = list(table.descriptor.primary_key)
    live = dict(below or {})
    batches = list(store.read_log(table, bucket, start, stop))
    if store.has_prev_offset:
        by_offset = Fold(start, stop)
        for batch in batches:
            by_offset.see(batch)
        by_offset.seal()
        for gone in by_offset.replaced_below.values.tolist():
            del live[gone]
        kept = [r for b in batches for r in by_offset.live(b).to_pylist()]
    else:
        by_key = KeyedFold(start, stop, key)
        for batch in batches:
            by_key.see(batch)
        by_key.seal()
        touched = {tuple(k.values()) for k in by_key.touched.to_pylist()}
        live = {o: r for o, r in live.items() if tuple(r[k] for k in key) not in touched}
        kept = [r for b in batches for r in by_key.live(b).to_pylist()]
    return {**live, **{r[OFFSET]: {name: r[name] for name in table.schema.names} for r in kept}}
