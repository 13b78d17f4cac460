# SPDX-License-Identifier: Apache-2.0
"""Scans live rows of a snapshot: columns matched by field id, deletes applied, one batch at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, IntegerType, LongType, PrimitiveType, StringType

from lakeward.bucketing import assign_buckets
from lakeward.errors import InvalidRequest
from lakeward.lake.core.columns import fill_address
from lakeward.lake.iceberg.meta.location import is_local
from lakeward.lake.iceberg.meta.types import is_clean, missing_scalars, to_arrow_type, with_address
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.project import Footer, decode, ids_by_name, keep_rows, physical_names, project
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward.lake.readahead import read_ahead
from lakeward.lake.satisfiable import filter_columns, may_match
from lakeward.model import BUCKET, OFFSET, Bucket, OffsetSet, TableInfo

_BOUNDED = (IntegerType, LongType, StringType, DateType)
"""Types whose stored bounds are plain values. Floats have NaN outside their bounds; the others prune little."""


class FilterBounds:
    """A filter with the columns that it names. When in doubt a file or row group is read."""

    def __init__(self, filter: pc.Expression, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
        self._filter, self._columns = filter, tuple(columns)
        self._schema = pa.schema([(n, types[n]) for n in columns])

    def may_hold(self, schema: Schema, file: DataFile) -> bool:
        """Whether a file may match, by the manifest's bounds: the file need not be opened."""

        def facts(name: str) -> tuple[Any, Any, bool] | None:
            field = schema.find_field(name)
            kind, at = field.field_type, field.field_id
            low, high = (file.lower_bounds or {}).get(at), (file.upper_bounds or {}).get(at)
            if not isinstance(kind, _BOUNDED) or low is None or high is None:
                return None
            try:
                return from_bytes(kind, low), _upper(kind, high), (file.null_value_counts or {}).get(at, 1) > 0
            except (struct.error, ValueError):  # written before the column's type became wider
                return None

        return self._may([facts])[0]

    def row_groups(self, file: pq.ParquetFile, physical: Mapping[str, str | None]) -> list[int]:
        """Returns the row groups that may have a matching row."""
        metadata = file.metadata
        leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}

        def facts_of(group: int) -> Callable[[str], tuple[Any, Any, bool] | None]:
            def facts(name: str) -> tuple[Any, Any, bool] | None:
                at = leaves.get(physical.get(name) or "")
                statistics = None if at is None else metadata.row_group(group).column(at).statistics
                if (
                    statistics is None
                    or not statistics.has_min_max
                    or pa.types.is_floating(self._schema.field(name).type)
                ):
                    return None
                return statistics.min, statistics.max, not statistics.has_null_count or statistics.null_count > 0

            return facts

        matching = self._may([facts_of(g) for g in range(metadata.num_row_groups)])
        return [group for group, may in enumerate(matching) if may]

    def _may(self, facts: Sequence[Callable[[str], tuple[Any, Any, bool] | None]]) -> list[bool]:
        return may_match(self._filter, self._schema, [self._known(f) for f in facts])

    def _known(self, facts: Callable[[str], tuple[Any, Any, bool] | None]) -> pc.Expression:
        known = pc.scalar(True)
        for name in self._columns:
            known_facts = facts(name)
            if known_facts is not None:
                known = known & self._between(name, *known_facts)
        return known

    def _between(self, name: str, low: Any, high: Any, has_nulls: bool) -> pc.Expression:
        kind, column = self._schema.field(name).type, pc.field(name)
        try:
            clauses = [column >= pa.scalar(low, kind)]
            if high is not None:
                clauses.append(column <= pa.scalar(high, kind))
        except (pa.ArrowException, TypeError, ValueError):
            return pc.scalar(True)
        # One by one: Arrow ignores a range that is combined with a null.
        return reduce(and_, [c | column.is_null() for c in clauses] if has_nulls else clauses)


def _upper(kind: PrimitiveType, raw: bytes) -> Any:
    """Decodes a bound; a text's upper bound may be truncated and incremented to invalid text, then there is none."""
    try:
        return from_bytes(kind, raw)
    except UnicodeDecodeError:
        return None


_BATCH_ROWS = 65_536


class Scan:
    """One projection of one table. `names`: columns of the current lake schema, system columns included. `without`:
    rows to leave out besides deleted ones."""

    def __init__(
        self,
        table: Table,
        info: TableInfo,
        names: Sequence[str],
        filter: pc.Expression | None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> None:
        self._table, self._info, self._names, self._filter = table, info, tuple(names), filter
        self._without = without or {}
        self._schema = with_address(table.metadata.schema())
        self._is_clean = is_clean(table.metadata.schema())
        self._types = {f.name: to_arrow_type(f.field_type) for f in self._schema.fields}
        self._ids, self._missing = ids_by_name(self._schema), missing_scalars(self._schema)
        unknown = [n for n in names if n not in self._types]
        if unknown:
            raise InvalidRequest(
                what=f"columns {', '.join(unknown)}", reason=f"the lake table has {', '.join(self._types)}"
            )
        filtered = filter_columns(filter, self._types)
        self._read = (*self._names, *(n for n in filtered if n not in self._names))
        self._bounds = None if filter is None else FilterBounds(filter, filtered, self._types)
        self._filters = DeleteFilter(table.io, self._schema)
        tells = self._is_clean and info.is_pk and BUCKET in self._read
        self._bucket_keys = info.descriptor.bucket_keys if tells else ()
        """In a file of several buckets a row's bucket is computed from its key."""

    def batches(
        self, planned: Iterable[PlannedFile], buckets: set[Bucket | None] | None
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        """Yields batches with the bucket of their file; None if the file has no bucket."""
        files = [f for f in planned if (buckets is None or f.bucket in buckets) and self._may_hold(f)]
        groups = list(_grouped(files))
        if len(groups) == 1:
            return self._of_files(groups[0])
        return read_ahead([partial(self._of_files, g) for g in groups])

    def _may_hold(self, planned: PlannedFile) -> bool:
        return self._bounds is None or self._bounds.may_hold(self._schema, planned.file)

    def _of_files(self, files: Sequence[PlannedFile]) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        return ((planned.bucket, batch) for planned in files for batch in self._file_batches(planned))

    def _file_batches(self, planned: PlannedFile) -> Iterator[pa.RecordBatch]:
        keeper = self._filters.of(planned, None if planned.bucket is None else self._without.get(planned.bucket))
        mixed = self._bucket_keys if planned.bucket is None else ()
        needed = tuple(dict.fromkeys((*self._read, *keeper.columns, *mixed)))
        with self._table.io.new_input(planned.file.file_path).open() as source:
            footer = Footer.load(planned.file.file_path, source)
            physical = physical_names(self._ids, footer.names, needed)
            columns = sorted({p for p in physical.values() if p is not None})
            coded = [c for c in columns if c in footer.coded]
            file = pq.ParquetFile(source, metadata=footer.metadata, read_dictionary=coded)
            # Handing columns to threads costs more than decoding a small file.
            threads = planned.file.record_count > _BATCH_ROWS
            for start, groups in self._runs(file, physical):
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=threads):
                    table = project(batch, needed, physical, self._types, self._missing)
                    if self._is_clean:
                        table = fill_address(table, planned.bucket, planned.first_offset, start)
                    keep = keeper.mask(table, start)
                    start += batch.num_rows
                    table = table if keep is None else keep_rows(table, keep)
                    yield from self._finish(self._with_buckets(table) if mixed and table.num_rows else table)

    def _runs(self, file: pq.ParquetFile, physical: dict[str, str | None]) -> Iterator[tuple[int, list[int]]]:
        """Returns adjacent row groups that may match the filter, with the position of their first row in the file."""
        count = file.metadata.num_row_groups
        if self._bounds is None:
            yield 0, list(range(count))
            return
        matching = self._bounds.row_groups(file, physical)
        starts = np.cumsum([0, *(file.metadata.row_group(g).num_rows for g in range(count))])
        run: list[int] = []
        for group in matching:
            if run and group != run[-1] + 1:
                yield int(starts[run[0]]), run
                run = []
            run.append(group)
        if run:
            yield int(starts[run[0]]), run

    def _with_buckets(self, table: pa.Table) -> pa.Table:
        numbers = pa.array(assign_buckets(table, self._info.descriptor)).cast(self._types[BUCKET])
        return table.set_column(table.column_names.index(BUCKET), BUCKET, numbers)

    def _finish(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = decode(table, self._types)
        if self._filter is not None:
            table = table.filter(self._filter)
        for batch in table.select(list(self._names)).to_batches():
            if batch.num_rows:
                yield batch


def _grouped(files: Iterable[PlannedFile]) -> Iterator[list[PlannedFile]]:
    """Groups adjacent files that one thread reads: starting a thread costs more than decoding a small local file, and
    less than waiting for an object store."""
    group: list[PlannedFile] = []
    rows = 0
    for planned in files:
        group.append(planned)
        rows += planned.file.record_count
        if rows >= _BATCH_ROWS or not is_local(planned.file.file_path):
            yield group
            group, rows = [], 0
    if group:
        yield group


def same_rows(table: Table, info: TableInfo, one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots have the same number of live rows, with the same highest offset, in every bucket. For a
    clean table, whose files another engine may have merged: the same number of rows in every partition."""
    return _extent(table, info, one) == _extent(table, info, other)


def _extent(table: Table, info: TableInfo, snapshot: Snapshot) -> dict[tuple[object, ...], tuple[int, int]]:
    if is_clean(table.metadata.schema()):
        return _row_counts(table, info, snapshot)
    keys = (*info.descriptor.partition_keys, BUCKET)
    columns = (*info.descriptor.partition_columns, BUCKET, OFFSET)
    extents: dict[tuple[object, ...], tuple[int, int]] = {}
    planned = plan_files(table.metadata, table.io, snapshot, info.descriptor.partition_keys)
    for _, batch in Scan(table, info, columns, None).batches(planned, None):
        grouped = _with_keys(batch, info).group_by(list(keys)).aggregate([(OFFSET, "count"), (OFFSET, "max")])
        for row in grouped.to_pylist():
            key = tuple(row[k] for k in keys)
            rows, highest = extents.get(key, (0, -1))
            extents[key] = (rows + row[f"{OFFSET}_count"], max(highest, row[f"{OFFSET}_max"]))
    return extents


def _row_counts(table: Table, info: TableInfo, snapshot: Snapshot) -> dict[tuple[object, ...], tuple[int, int]]:
    keys, counts = info.descriptor.partition_keys, dict[tuple[object, ...], tuple[int, int]]()
    planned = plan_files(table.metadata, table.io, snapshot, keys)
    for _, batch in Scan(table, info, (*info.descriptor.partition_columns, OFFSET), None).batches(planned, None):
        for row in _with_keys(batch, info).group_by(list(keys)).aggregate([([], "count_all")]).to_pylist():
            key = tuple(row[k] for k in keys)
            counts[key] = (counts.get(key, (0, 0))[0] + row["count_all"], 0)
    return counts


def _with_keys(batch: pa.RecordBatch, info: TableInfo) -> pa.Table:
    """Adds a column for each time partition, named as its key."""
    rows = pa.Table.from_batches([batch])
    for key in info.descriptor.partitioning:
        if key.unit is not None:
            rows = rows.append_column(str(key), key.texts(rows.column(key.column)))
    return rows
