# SPDX-License-Identifier: Apache-2.0
"""Rows of file groups: base files, with log files merged by key; the newest commit counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.errors import LakeTampered
from lakeward.lake.core.columns import keep_rows
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.meta.columns import RECORD_KEY
from lakeward.lake.hudi.meta.slices import GroupId, HudiFile
from lakeward.lake.hudi.scan.logblock import COMMAND, DELETES, LOG_FILE_BYTES, PARQUET_ROWS, read_blocks
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OFFSET, OffsetRange, cast_values

BATCH_ROWS = 65_536
_CACHED = 16_384


@dataclass(frozen=True)
class BaseFileFacts:
    rows: int
    offsets: OffsetRange | None


@dataclass(frozen=True)
class MergedLogs:
    """Merged log files of a group: the newest rows, and every key that they write or delete."""

    rows: pa.Table
    keys: pa.Array


class HudiRows:
    """Reads rows of one table. `schema`: schema of the returned rows."""

    def __init__(self, files: TableFiles, table: str, schema: pa.Schema) -> None:
        self._files, self._table, self._schema = files, table, schema

    @property
    def names(self) -> list[str]:
        return list(self._schema.names)

    def live(self, group: Sequence[HudiFile], names: Sequence[str]) -> Iterator[pa.Table]:
        """Reads one file group, in the order of `merge_order`: its base file's rows, then those of its log files."""
        logs = self.merge([f for f in group if f.is_log], names)
        for file in group:
            if not file.is_log:
                for part in self._base(file, names, with_keys=logs is not None):
                    rows = self.fit(part, names)
                    yield rows if logs is None else keep_rows(rows, _untold(part, logs.keys))
        if logs is not None and logs.rows.num_rows:
            yield self.fit(logs.rows, names)

    def merge(self, logs: Sequence[HudiFile], names: Sequence[str]) -> MergedLogs | None:
        """Merges log files; None without any. The last change of a key counts."""
        if not logs:
            return None
        read_columns = [*dict.fromkeys((*names, RECORD_KEY))]
        tables, keys = list[pa.Table](), list[pa.Array]()
        for rows, block_keys in self._blocks(logs, read_columns):
            keys.append(block_keys)
            tables.append(rows)
        every = pa.concat_arrays(keys) if keys else pa.array([], pa.string())
        unique, last = _last(every)
        chosen, first = [], 0
        for table, block_keys in zip(tables, keys, strict=True):
            stop = first + len(block_keys)
            if table is not None:
                at = last[(last >= first) & (last < stop)] - first
                chosen.append(table.take(pa.array(np.sort(at))))
            first = stop
        newest_rows = pa.concat_tables(chosen, promote_options="permissive") if chosen else pa.table({})
        return MergedLogs(newest_rows, unique)

    def _blocks(self, logs: Sequence[HudiFile], names: Sequence[str]) -> Iterator[tuple[pa.Table | None, pa.Array]]:
        for file in logs:
            with lake_errors(self._table, "read a log file of"):
                data = self._files.read_bytes(file.path, LOG_FILE_BYTES)
            if data is None:
                raise self._broken(file, ValueError("it is gone"))
            try:
                for block in read_blocks(data):
                    if block.kind == COMMAND:
                        continue
                    if block.kind == DELETES:
                        yield None, pa.array(block.deleted_keys(), pa.string())
                    else:
                        rows = block.rows(names)
                        yield rows, rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
            except (ValueError, KeyError, pa.ArrowInvalid) as error:
                raise self._broken(file, error) from error

    def _base(self, file: HudiFile, names: Sequence[str], *, with_keys: bool) -> Iterator[pa.Table]:
        wanted = [*dict.fromkeys((*names, *((RECORD_KEY,) if with_keys else ())))]
        with lake_errors(self._table, "read a file of"), self._files.open_input(file.path) as source:
            parquet = pq.ParquetFile(source)
            there = [n for n in wanted if n in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(BATCH_ROWS, columns=there, use_threads=False):
                # a batch without columns still has rows
                yield pa.Table.from_batches([batch]) if there else _bare(batch.num_rows)

    def fit(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Fits a batch to the schema; columns added since are null."""
        fields = [self._schema.field(n) for n in names]
        arrays = []
        for field in fields:
            if field.name not in rows.column_names:
                arrays.append(pa.nulls(rows.num_rows, field.type))
                continue
            column = rows.column(field.name)
            arrays.append(column if column.type == field.type else _cast(column, field.type))
        return pa.table(arrays, schema=pa.schema(fields))

    def _broken(self, file: HudiFile, error: Exception) -> LakeTampered:
        return LakeTampered(table=self._table, snapshot=file.instant, what=f"log file {file.path}", reason=str(error))


def by_group(files: Iterable[HudiFile]) -> dict[GroupId, list[HudiFile]]:
    groups = defaultdict[GroupId, list[HudiFile]](list)
    for file in files:
        groups[file.group].append(file)
    return dict(groups)


@lru_cache(_CACHED)
def _facts(files: TableFiles, path: str, size: int) -> BaseFileFacts:
    """Facts in the footer of a base file, which never changes."""
    with files.open_input(path) as source:
        return _footer_facts(pq.ParquetFile(source).metadata)


@lru_cache(_CACHED)
def _log_bounds(files: TableFiles, path: str, size: int) -> OffsetRange | None:
    """Offset bounds of the rows in a log file's blocks; a file without rows only deletes, and may be in any
    position."""
    bounds: list[OffsetRange] = []
    for block in read_blocks(files.read_bytes(path, LOG_FILE_BYTES) or b""):
        if block.kind == PARQUET_ROWS:
            offsets = _footer_facts(pq.ParquetFile(pa.BufferReader(block.content)).metadata).offsets
            if offsets is None:
                return None
            bounds.append(offsets)
        elif block.kind not in (DELETES, COMMAND):
            return None
    if not bounds:
        return OffsetRange(0, 1)
    return OffsetRange(min(b.start for b in bounds), max(b.stop for b in bounds))


def log_bounds(files: TableFiles, file: HudiFile, table: str) -> OffsetRange | None:
    """None: unknown."""
    try:
        with lake_errors(table, "read a log file of"):
            return _log_bounds(files, file.path, file.size_bytes)
    except (ValueError, pa.ArrowInvalid):
        return None


def _footer_facts(metadata: pq.FileMetaData) -> BaseFileFacts:
    names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    low, high = [], []
    if OFFSET in names:
        at = names.index(OFFSET)
        for number in range(metadata.num_row_groups):
            stats = metadata.row_group(number).column(at).statistics
            if stats is None or not stats.has_min_max:
                return BaseFileFacts(metadata.num_rows, None)
            low.append(stats.min)
            high.append(stats.max)
    bounds = OffsetRange(min(low), max(high) + 1) if low else None
    return BaseFileFacts(metadata.num_rows, bounds)


def base_facts(files: TableFiles, file: HudiFile, table: str) -> BaseFileFacts:
    with lake_errors(table, "read a file of"):
        return _facts(files, file.path, file.size_bytes)


def _bare(count: int) -> pa.Table:
    return pa.table({"": pa.nulls(count)})


def _untold(rows: pa.Table, keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Marks the rows with none of these keys."""
    told = pc.is_in(rows.column(RECORD_KEY), value_set=keys)
    return ~np.asarray(told.to_numpy(), np.bool_)


def _last(keys: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Returns each key once, with the position of its last occurrence."""
    encoded = keys.dictionary_encode()
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(numbers[::-1], return_index=True)
    return encoded.dictionary, len(numbers) - 1 - first


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Renames parts of maps and lists, which other engines name differently."""
    try:
        return cast_values(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([pa.array(column.to_pylist(), kind)])
