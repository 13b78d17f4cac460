# SPDX-License-Identifier: Apache-2.0
"""Rows of fragments: with the current columns, without deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakeUnreadable
from lakeward.lake.core.columnmap import StoredColumn, stored_key, without_keys
from lakeward.lake.core.columns import fit_rows
from lakeward.lake.core.files import SnapshotFiles
from lakeward.lake.lance import is_missing, lake_errors
from lakeward.lake.lance.columns import key_names
from lakeward.lake.lance.datafile import FileFacts, is_ours, load_deletions, load_facts, read_offsets
from lakeward.lake.lance.table import DATA, LanceTable, fragments_of
from lakeward.model import (
    BUCKET,
    OFFSET,
    PARTITION_SEPARATOR,
    Bucket,
    OffsetRange,
    Offsets,
    OffsetSet,
    PartitionKey,
    partition_values,
)
from lakeward.spi import LakeDelete, LakeFile

BATCH_ROWS = 65_536


class LanceRows(SnapshotFiles[Any]):
    """Fragments of one version, or those that a commit will add to it. `keys`: the table's partition columns.
    `columns`: as the reader of the rows sees them; this version may have them under other names."""

    def __init__(
        self,
        table: LanceTable,
        dataset: lance.LanceDataset,
        keys: Sequence[PartitionKey],
        columns: Sequence[StoredColumn] = (),
        files: Sequence[Any] | None = None,
    ) -> None:
        self._table, self._dataset, self._keys = table, dataset, tuple(keys)
        self._names = {c.column.name: c.key for c in columns}
        self.files = fragments_of(dataset) if files is None else files

    @cached_property
    def _facts(self) -> dict[int, FileFacts]:
        own = [f for f in self.files if is_ours(f.files[0].path)]
        with lake_errors(self._table.name, "read a file of"):
            known = load_facts([self.path(f) for f in own], self._table.storage_options)
        return {f.id: facts for f, facts in zip(own, known, strict=True) if facts is not None}

    def facts(self, fragment: Any) -> FileFacts:
        """Finds the buckets of foreign fragments by reading their rows."""
        known = self._facts.get(fragment.id)
        if known is None:
            buckets, offsets = {b for b, _ in self._found_places(fragment)}, self.offsets(fragment)
            bounds = OffsetRange(int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else None
            known = self._facts[fragment.id] = FileFacts(buckets.pop() if len(buckets) == 1 else None, bounds)
        return known

    def key(self, fragment: Any) -> str:
        return str(fragment.files[0].path)

    def path(self, fragment: Any) -> str:
        return f"{self._table.root}/{DATA}/{fragment.files[0].path}"

    def bucket(self, fragment: Any) -> Bucket | None:
        return self.facts(fragment).bucket

    def bounds(self, fragment: Any) -> OffsetRange | None:
        return self.facts(fragment).offsets

    def rows(self, fragment: Any) -> int:
        return int(fragment.physical_rows)

    def live_rows(self, fragment: Any) -> int:
        return int(fragment.num_rows)

    def size(self, fragment: Any) -> int:
        return sum(file.file_size_bytes or 0 for file in fragment.files)

    def delete_files(self) -> int:
        return sum(f.deletion_file is not None for f in self.files)

    def describe(self, fragment: Any) -> LakeFile:
        """Describes a fragment; only Lance's own reader can read its rows."""
        facts, deletion = self.facts(fragment), fragment.deletion_file
        values = () if facts.bucket is None else partition_values(facts.bucket.partition)
        deletes = [] if deletion is None else [f"{self._table.root}/{deletion.path(fragment.id)}"]
        return LakeFile(
            path=self.path(fragment),
            bucket=facts.bucket,
            record_count=fragment.physical_rows,
            size_bytes=self.size(fragment),
            offsets=facts.offsets,
            sequence=facts.since,
            deletes=tuple(
                LakeDelete(
                    path=path,
                    content="vector",
                    record_count=fragment.num_deletions,
                    sequence=deletion.read_version + 1,
                )
                for path in deletes
            ),
            partition=dict(zip(map(str, self._keys), values, strict=False)),
            is_reader_needed=True,
        )

    def places(self, fragment: Any) -> Sequence[tuple[Bucket | None, Offsets | None]]:
        facts = self._facts.get(fragment.id)
        if facts is not None and facts.bucket is not None:
            return [(facts.bucket, None)]
        return self._found_places(fragment)

    def _found_places(self, fragment: Any) -> list[tuple[Bucket, Offsets]]:
        """Finds them by reading its rows."""
        rows = self._physical(fragment, [*(k.column for k in self._keys), BUCKET])
        parts = [k.texts(rows.column(at)) for at, k in enumerate(self._keys)]
        partition = pc.binary_join_element_wise(*parts, PARTITION_SEPARATOR) if parts else pa.nulls(len(rows))
        grouped = pa.table({"partition": partition, "number": rows.column(BUCKET), "at": np.arange(len(rows))})
        groups = grouped.group_by(["partition", "number"]).aggregate([("at", "list")]).to_pylist()
        return [(Bucket(g["partition"] or "", g["number"]), np.asarray(g["at_list"], np.int64)) for g in groups]

    def offsets(self, fragment: Any) -> Offsets:
        """Reads the offset of every row, deleted rows included, in the fragment's order."""
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

    def live(self, fragment: Any, schema: pa.Schema) -> Iterator[pa.Table]:
        """Reads live rows in the fragment's order, batch by batch; columns added since are null."""
        there = self._there(schema)
        scanner = self._dataset.get_fragment(fragment.id).scanner(
            columns=list(there.values()), with_row_address=True, batch_size=BATCH_ROWS
        )
        with _row_errors(self._table.name):
            for batch in scanner.to_batches():
                yield _fit(batch, there, schema)

    def read(self, fragments: Sequence[Any], schema: pa.Schema) -> Iterator[pa.Table]:
        """Reads live rows of several fragments, in their order, with one plan of the library: making a plan costs as
        much as a thousand rows."""
        present = self._there(schema)
        scanner = self._dataset.scanner(
            columns=list(present.values()),
            fragments=[self._dataset.get_fragment(f.id) for f in fragments],
            with_row_address=not present,
            batch_size=BATCH_ROWS,
            scan_in_order=True,
        )
        with _row_errors(self._table.name):
            for batch in scanner.to_batches():
                yield _fit(batch, present, schema)

    @cached_property
    def _by_key(self) -> dict[str, str]:
        return key_names(self._dataset.lance_schema)

    def _there(self, schema: pa.Schema) -> dict[str, str]:
        """Column name in `schema` -> its name in this version, for the columns that it has."""
        keys = {f.name: stored_key(f) for f in schema}
        names = {n: self._by_key.get(key, key) for n, key in keys.items()}
        return {n: name for n, name in names.items() if name in self._dataset.schema.names}

    def _physical(self, fragment: Any, columns: Sequence[str]) -> pa.Table:
        names = [self._by_key.get(self._names.get(c, c), c) for c in columns]
        scanner = self._dataset.get_fragment(fragment.id).scanner(
            columns=names, with_row_id=True, include_deleted_rows=True
        )
        with _row_errors(self._table.name):
            return scanner.to_table().select(names)


def _fit(batch: pa.RecordBatch, names: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    """Fits a batch to the schema. `names`: column name in `schema` -> name in the batch."""
    rows = pa.table(batch)
    if not names:
        return fit_rows(rows, without_keys(schema))
    renamed = pa.Table.from_arrays([rows.column(there) for there in names.values()], names=list(names))
    return fit_rows(renamed, without_keys(schema))


@contextmanager
def _row_errors(table: str) -> Iterator[None]:
    """Translates errors while rows are read. The library can write some nested values that it cannot read:
    `LakeUnreadable`."""
    with lake_errors(table, "read rows of"):
        try:
            yield
        except pa.ArrowInvalid as error:
            if is_missing(error):
                raise
            raise LakeUnreadable(lake="lance", table=table, reason=str(error)[:300]) from error
