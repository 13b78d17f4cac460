# SPDX-License-Identifier: Apache-2.0
"""What other engines may do to a lake table, as tests need it: append, compact, delete, expire, roll back."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.memory.rows import data_files, live_mask, live_rows
from lakeward.lake.memory.table import DataFile, MemoryLake, MemoryTable, PositionDeletes, Snapshot
from lakeward.model import OffsetSet, SnapshotId, TablePath


class MemoryForeignEngine:
    """Commits carry no keys of ours, move main and never the tag."""

    def __init__(self, lake: MemoryLake, path: TablePath) -> None:
        self._lake, self._path = lake, path

    def touch(self) -> Snapshot:
        """A commit that changes nothing but main."""
        return self._commit("replace", frozenset(), frozenset())

    def compact(self) -> Snapshot:
        """Rewrites each bucket into one file of live rows, in descending offset order."""
        with self._lake.lock:
            table, head = self._head()
            by_bucket: dict[object, list[pa.Table]] = {}
            for file in data_files(table, head):
                by_bucket.setdefault(file.bucket, []).append(live_rows(table, head, file))
            added = []
            for file in list(data_files(table, head)):
                parts = by_bucket.pop(file.bucket, None)
                if parts:
                    rows = pa.concat_tables(parts, promote_options="default").sort_by([("__offset", "descending")])
                    added.append(
                        self._store(
                            DataFile(path=self._name(), bucket=file.bucket, rows=rows, modified_at_ms=self._now())
                        )
                    )
            return self._commit("replace", frozenset(added), frozenset((*head.data, *head.deletes)))

    def delete(self, condition: pc.Expression) -> Snapshot:
        """Deletes the rows that match, by position."""
        with self._lake.lock:
            table, head = self._head()
            added = []
            for file in data_files(table, head):
                marked = file.rows.append_column("__position", pa.array(np.arange(file.rows.num_rows)))
                hit = marked.filter(condition).column("__position").to_numpy()
                live = np.flatnonzero(live_mask(table, head, file))
                positions = OffsetSet(np.intersect1d(hit, live))
                if positions:
                    added.append(
                        self._store(
                            PositionDeletes(
                                path=self._name(),
                                bucket=file.bucket,
                                data_path=file.path,
                                positions=positions,
                                modified_at_ms=self._now(),
                            )
                        )
                    )
            return self._commit("delete", frozenset(added), frozenset())

    def rows(self) -> list[pa.Table]:
        """Live rows of the head, file by file."""
        with self._lake.lock:
            table, head = self._head()
            return [live_rows(table, head, f) for f in data_files(table, head)]

    def insert(self, rows: pa.Table) -> Snapshot:
        """Rows with a bucket and an offset that they chose."""
        with self._lake.lock:
            _, head = self._head()
            (bucket, *_) = (f.bucket for f in data_files(self._lake.table(self._path), head))
            file = DataFile(path=self._name(), bucket=bucket, rows=rows, modified_at_ms=self._now())
            return self._commit("append", frozenset([self._store(file)]), frozenset())

    def update(self, condition: pc.Expression, column: str, value: object) -> Snapshot:
        """Copy on write: the rows that match get another value, and stay where they are."""
        with self._lake.lock:
            table, head = self._head()
            added = []
            for file in data_files(table, head):
                rows = live_rows(table, head, file)
                at = rows.column_names.index(column)
                new = pa.scalar(value, rows.schema.field(column).type)
                marked = rows.append_column("__at", pa.array(np.arange(rows.num_rows)))
                hit = pa.array(np.isin(np.arange(rows.num_rows), marked.filter(condition).column("__at").to_numpy()))
                rows = rows.set_column(at, rows.schema.field(column), pc.if_else(hit, new, rows.column(column)))
                added.append(
                    self._store(DataFile(path=self._name(), bucket=file.bucket, rows=rows, modified_at_ms=self._now()))
                )
            return self._commit("overwrite", frozenset(added), frozenset((*head.data, *head.deletes)))

    def expire(self) -> None:
        """Drops every snapshot but main's head and the tagged one, with the files that only they had."""
        with self._lake.lock:
            table = self._lake.table(self._path)
            gone = [table.snapshots.pop(n) for n in list(table.snapshots) if n not in (table.head, table.tag)]
            used = {p for s in table.snapshots.values() for p in (*s.data, *s.deletes)}
            for path in {p for s in gone for p in (*s.data, *s.deletes)} - used:
                table.files.pop(path, None)

    def roll_back(self, snapshot_id: SnapshotId) -> None:
        with self._lake.lock:
            table = self._lake.table(self._path)
            table.head = table.snapshot(snapshot_id).number

    def _head(self) -> tuple[MemoryTable, Snapshot]:
        table = self._lake.table(self._path)
        assert table.head is not None, "a foreign engine needs a snapshot to start from"
        return table, table.snapshots[table.head]

    def _commit(self, operation: str, add: frozenset[str], drop: frozenset[str]) -> Snapshot:
        table = self._lake.table(self._path)
        with self._lake.lock:
            snapshot = self._lake.commit(
                table, table.refs, operation=operation, summary={}, add=add, drop=drop, move_tag=False
            )
        assert snapshot is not None
        return snapshot

    def _store(self, file: DataFile | PositionDeletes) -> str:
        self._lake.table(self._path).files[file.path] = file
        return file.path

    def _name(self) -> str:
        return f"{self._lake.table(self._path).location}/foreign/{uuid.uuid4().hex}"

    def _now(self) -> int:
        return self._lake.clock.now_ms()
