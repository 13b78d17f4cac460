# SPDX-License-Identifier: Apache-2.0
"""Finds the rows of a data file that its deletes leave. Delete files never change: their positions are cached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader, positions_of
from lakeward.lake.iceberg.datafile.puffin import decode_vector
from lakeward.lake.iceberg.meta.location import canonical
from lakeward.lake.iceberg.meta.types import FIELD_ID
from lakeward.lake.iceberg.scan.snapshotfiles import DeleteEntry, PlannedFile
from lakeward.lake.kept import Kept
from lakeward.model import OFFSET, Offsets, OffsetSet, cast_column
from lakeward.spi import LakeFile

Mask = npt.NDArray[np.bool_]
_POSITIONS: Kept[dict[str, Offsets]] = Kept(4_000_000, lambda by_file: sum(map(len, by_file.values())))
"""Positions per delete file, by data file: at most 32 MB."""

_NONE: Offsets = np.empty(0, np.int64)

_LOADED_ROWS = 8_000_000
"""The offsets of a larger file (64 MB) are not loaded at once: its rows are looked up batch by batch."""


class Keeper:
    """The deletes of one data file, applied batch by batch. `columns`: those that it needs. `gone`: offsets of more
    deleted rows, whose positions are unknown."""

    def __init__(
        self, positions: Offsets, keys: Sequence[tuple[tuple[str, ...], pa.Table]], gone: OffsetSet | None = None
    ) -> None:
        self._positions, self._keys, self._gone = positions, keys, gone
        self.columns = tuple(dict.fromkeys([*(n for names, _ in keys for n in names), *([OFFSET] if gone else [])]))

    def mask(self, table: pa.Table, start: int) -> Mask | None:
        """Returns true for live rows; None if all are. `start`: the position of the table's first row in its file."""
        low, high = self._within(start, start + table.num_rows)
        if low == high and not self._keys and not self._gone:
            return None
        keep = np.ones(table.num_rows, np.bool_)
        keep[self._positions[low:high] - start] = False
        for names, deleted in self._keys:
            keep &= ~matching_rows(table.select(list(names)), deleted)
        if self._gone:
            keep &= ~self._gone.mask(table.column(OFFSET).to_numpy())
        return keep

    def _within(self, start: int, stop: int) -> tuple[int, int]:
        """Skips an empty search, for which NumPy takes a ninth of the time of reading a small file."""
        if not len(self._positions):
            return 0, 0
        low, high = np.searchsorted(self._positions, [start, stop])
        return int(low), int(high)


class DeleteFilter:
    def __init__(self, io: FileIO, schema: Schema) -> None:
        self._io, self._schema = io, schema
        self._keys: dict[str, pa.Table] = {}

    def of(self, planned: PlannedFile, gone: OffsetSet | None = None) -> Keeper:
        """`gone`: offsets whose rows are left out as well. They become positions if the file's offsets are cached:
        decoding its `__offset` column for every row takes a seventh of a read."""
        parts: list[Offsets] = []
        keys: dict[tuple[str, ...], list[pa.Table]] = {}
        path = canonical(planned.file.file_path) if planned.deletes else ""
        for delete in planned.deletes:
            if delete.content == "equality":
                names = tuple(self._schema.find_column_name(i) or "" for i in delete.file.equality_ids or ())
                keys.setdefault(names, []).append(self._load_keys(delete.file.file_path, names))
            else:
                parts.append(self._positions_of(delete, path))
        dead_rows = self._find_rows(planned, gone) if gone else None
        if dead_rows is not None:
            parts.append(dead_rows)
        return Keeper(
            _joined(parts),
            [(names, pa.concat_tables(tables, promote_options="permissive")) for names, tables in keys.items()],
            gone if dead_rows is None else None,
        )

    def of_described(self, file: LakeFile) -> Keeper:
        """As `of`, for a file as the plug point describes it."""
        keys: dict[tuple[str, ...], list[pa.Table]] = {}
        for delete in file.deletes:
            if delete.content == "equality":
                names = delete.equality_columns
                keys.setdefault(names, []).append(self._load_keys(delete.path, names))
        joined = [(names, pa.concat_tables(tables, promote_options="permissive")) for names, tables in keys.items()]
        return Keeper(self.positions(file), joined)

    def named_files(self, path: str) -> set[str]:
        """Returns the data files that a positional delete file names, in canonical spelling."""
        return set(self._load_positions(path))

    def _find_rows(self, planned: PlannedFile, gone: OffsetSet) -> Offsets | None:
        """Returns the positions of these offsets in a file; None if looking them up batch by batch is better."""
        first, last = planned.indexed.first, planned.indexed.last
        if first is None or last is None or planned.file.record_count > _LOADED_ROWS:
            return None
        low, high = np.searchsorted(gone.values, [first, last + 1])
        if low == high:
            return np.empty(0, np.int64)
        offsets = OffsetLoader(self._io, self._schema.find_field(OFFSET).field_id).load(planned.file)
        return positions_of(offsets, gone.values[low:high])[1]

    def positions_in(self, delete: DeleteEntry, path: str) -> Offsets:
        """Returns the rows of a data file that a vector, or a positional delete file, removes."""
        return self._positions_of(delete, canonical(path))

    def _positions_of(self, delete: DeleteEntry, path: str) -> Offsets:
        """`path`: in canonical spelling, computed once for all deletes of a file."""
        if delete.content == "vector":
            return self._load_vector(delete)
        return self._load_positions(delete.file.file_path).get(path, _NONE)

    def positions(self, file: LakeFile) -> Offsets:
        """Returns the rows that positional deletes and vectors remove from a described file; keys are ignored."""
        path, parts = canonical(file.path), [np.empty(0, np.int64)]
        for delete in file.deletes:
            if delete.content == "vector":
                parts.append(self._read_vector(delete.path, delete.content_offset or 0, delete.content_size or 0))
            elif delete.content == "positions":
                parts.append(self._load_positions(delete.path).get(path, parts[0]))
        return OffsetSet(np.concatenate(parts)).values

    def _load_positions(self, path: str) -> dict[str, Offsets]:
        return _POSITIONS.load(path, lambda: self._read_positions(path))

    def _read_positions(self, path: str) -> dict[str, Offsets]:
        with self._io.new_input(path).open() as source:
            table = pq.ParquetFile(source).read(columns=["file_path", "pos"], use_threads=False)
        names = table.column("file_path").combine_chunks().dictionary_encode()
        positions, index = table.column("pos").to_numpy(), names.indices.to_numpy()
        return {
            canonical(name): np.sort(positions[index == at].astype(np.int64))
            for at, name in enumerate(names.dictionary.to_pylist())
        }

    def _load_keys(self, path: str, names: tuple[str, ...]) -> pa.Table:
        if path not in self._keys:
            with self._io.new_input(path).open() as source:
                table = pq.ParquetFile(source).read()
            by_id = {int(f.metadata[FIELD_ID]): f.name for f in table.schema if f.metadata and FIELD_ID in f.metadata}
            columns = [table.column(by_id[self._schema.find_field(n).field_id]) for n in names]
            self._keys[path] = pa.table(columns, names=list(names))
        return self._keys[path]

    def _load_vector(self, delete: DeleteEntry) -> Offsets:
        return self._read_vector(delete.file.file_path, delete.content_offset or 0, delete.content_size or 0)

    def _read_vector(self, path: str, offset: int, size: int) -> Offsets:
        with self._io.new_input(path).open() as source:
            source.seek(offset)
            blob: bytes = source.read(size)
        return decode_vector(blob, path)


def _joined(parts: Sequence[Offsets]) -> Offsets:
    """Merges sorted parts. Each part is sorted, so a sort that detects runs takes a thirtieth of the time; most delete
    files that may name a file do not."""
    named = [p for p in parts if len(p)]
    if len(named) < 2:
        return named[0] if named else _NONE
    return np.sort(np.concatenate(named), kind="stable")


def matching_rows(rows: pa.Table, deleted: pa.Table) -> Mask:
    """Returns for each row whether its key is deleted; null equals null, as in Iceberg."""
    codes = np.zeros(rows.num_rows + deleted.num_rows, np.int64)
    for name in rows.column_names:
        kind = rows.schema.field(name).type
        joined = pa.chunked_array(
            [*rows.column(name).chunks, *cast_column(deleted.column(name), kind).chunks], kind
        ).combine_chunks()
        values = joined.dictionary_encode().indices.fill_null(-1).to_numpy() + 1
        codes = np.unique(codes * (int(values.max(initial=0)) + 1) + values, return_inverse=True)[1]
    matches: Mask = np.isin(codes[: rows.num_rows], codes[rows.num_rows :])
    return matches
