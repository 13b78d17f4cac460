# SPDX-License-Identifier: Apache-2.0
"""Rows of fragments: with today's columns, without those that are deleted; and where given offsets lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.lance.datafile import FileFacts, is_ours, load_facts, read_offsets
from lakeward.lake.lance.deletions import load_deletions
from lakeward.lake.lance.failures import lake_errors
from lakeward.lake.lance.table import DATA, LanceTable, fragments_of
from lakeward.model.bucket import PARTITION_SEPARATOR, Bucket
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.schema import BUCKET, OFFSET

BATCH_ROWS = 65_536
_ADDRESS = "_rowaddr"
_POSITION = 0xFFFFFFFF
"""The lower half of a row's address; the upper is its fragment."""


class LanceRows:
    """Fragments of one version. `partition_keys`: the table's."""

    def __init__(self, table: LanceTable, dataset: lance.LanceDataset, partition_keys: Sequence[str]) -> None:
        self._table, self._dataset, self._keys = table, dataset, tuple(partition_keys)

    def among(self, fragments: Sequence[Any]) -> LanceRows:
        """The same table with other fragments: those that a commit will add."""
        rows = LanceRows(self._table, self._dataset, self._keys)
        rows.__dict__["fragments"] = list(fragments)
        return rows

    @cached_property
    def fragments(self) -> list[Any]:
        return fragments_of(self._dataset)

    @cached_property
    def _facts(self) -> dict[int, FileFacts]:
        own = [f for f in self.fragments if is_ours(f.files[0].path)]
        with lake_errors(self._table.name, "read a file of"):
            known = load_facts([self.path(f) for f in own], self._table.storage_options)
        return {f.id: facts for f, facts in zip(own, known, strict=True) if facts is not None}

    def facts(self, fragment: Any) -> FileFacts:
        """Of others' fragments by a look at their rows."""
        known = self._facts.get(fragment.id)
        if known is None:
            buckets, offsets = {b for b, _ in self.places(fragment)}, self.offsets(fragment)
            bounds = OffsetRange(int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else None
            known = self._facts[fragment.id] = FileFacts(buckets.pop() if len(buckets) == 1 else None, bounds)
        return known

    def path(self, fragment: Any) -> str:
        return f"{self._table.root}/{DATA}/{fragment.files[0].path}"

    def places(self, fragment: Any) -> list[tuple[Bucket, Offsets]]:
        """Which of its rows, by position, are of which bucket."""
        facts = self._facts.get(fragment.id)
        if facts is not None and facts.bucket is not None:
            return [(facts.bucket, np.arange(fragment.physical_rows, dtype=np.int64))]
        rows = self._physical(fragment, [*self._keys, BUCKET])
        parts = [rows.column(k).cast(pa.string()) for k in self._keys]
        partition = pc.binary_join_element_wise(*parts, PARTITION_SEPARATOR) if parts else pa.nulls(len(rows))
        grouped = pa.table({"partition": partition, "number": rows.column(BUCKET), "at": np.arange(len(rows))})
        groups = grouped.group_by(["partition", "number"]).aggregate([("at", "list")]).to_pylist()
        return [(Bucket(g["partition"] or "", g["number"]), np.asarray(g["at_list"], np.int64)) for g in groups]

    def offsets(self, fragment: Any) -> Offsets:
        """Of every row, deleted ones too, in the fragment's order."""
        if is_ours(fragment.files[0].path):
            with lake_errors(self._table.name, "read a file of"):
                return read_offsets(self.path(fragment), self._table.storage_options)
        return np.asarray(self._physical(fragment, [OFFSET]).column(0).to_numpy(), np.int64)

    def deleted(self, fragment: Any) -> OffsetSet:
        if fragment.deletion_file is None:
            return OffsetSet()
        path = f"{self._table.root}/{fragment.deletion_file.path(fragment.id)}"
        with lake_errors(self._table.name, "read deletions of"):
            return load_deletions(self._table.files, path, self._table.name)

    def live_positions(self, fragment: Any) -> Offsets:
        every = np.arange(fragment.physical_rows, dtype=np.int64)
        return every[~self.deleted(fragment).mask(every)]

    def live(self, fragment: Any, schema: pa.Schema) -> Iterator[tuple[Offsets, pa.Table]]:
        """Live rows in the fragment's order, batch by batch, with the positions they have in it; a column that was
        added since is null."""
        there = [n for n in schema.names if n in self._dataset.schema.names]
        scanner = self._dataset.get_fragment(fragment.id).scanner(
            columns=there, with_row_address=True, batch_size=BATCH_ROWS
        )
        with lake_errors(self._table.name, "read rows of"):
            for batch in scanner.to_batches():
                positions = (batch.column(_ADDRESS).to_numpy() & _POSITION).astype(np.int64)
                yield positions, _fit(pa.table(batch), schema)

    def scan(self, fragments: Sequence[Any], schema: pa.Schema) -> Iterator[pa.Table]:
        """Live rows of several, in their order, by one plan of the library's: making one costs as much as a thousand
        rows."""
        there = [n for n in schema.names if n in self._dataset.schema.names]
        scanner = self._dataset.scanner(
            columns=there,
            fragments=[self._dataset.get_fragment(f.id) for f in fragments],
            with_row_address=not there,
            batch_size=BATCH_ROWS,
            scan_in_order=True,
        )
        with lake_errors(self._table.name, "read rows of"):
            for batch in scanner.to_batches():
                yield _fit(pa.table(batch), schema)

    def _physical(self, fragment: Any, columns: Sequence[str]) -> pa.Table:
        scanner = self._dataset.get_fragment(fragment.id).scanner(
            columns=list(columns), with_row_id=True, include_deleted_rows=True
        )
        with lake_errors(self._table.name, "read rows of"):
            return scanner.to_table().select(list(columns))


def _fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        if field.name in rows.column_names:
            column = rows.column(field.name)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(arrays, schema=schema)
