# SPDX-License-Identifier: Apache-2.0
"""Adopts a lake table with a primary key: its rows in one snapshot are loaded into the hot store; then the lake table
is marked, on exactly that snapshot; then the table becomes visible. Nothing is changed in the lake before all rows are
in. The hot store's record of a load is enough to continue after a crash at any step. A foreign commit in between starts
the load over."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.coordinator.state.board import Board
from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    InvalidRequest,
    InvalidTable,
    LakeTampered,
    LakewardError,
    LoadLost,
    SnapshotGone,
)
from lakeward.model import BackgroundThread, Bucket, SnapshotId, TableInfo, TablePath, fault_point
from lakeward.protocol.operate import AdoptionStatus
from lakeward.spi import HotLoad, LakeStorage, SupportsFileOrder, SupportsTakeOver

_log = logging.getLogger(__name__)

EVERY_S = 0.5
"""How soon a load begins, and how soon one that failed for a reason that may pass is tried again."""

_LOOK_S = 10.0
"""How often the lake is asked whether others committed: what is loaded then is for nothing."""

_MOST_ANEW = 5
_REMEMBERED = 100
_SNAPSHOT, _LAKE, _FILES, _ANEW, _OF, _WORDS = "snapshot", "lake", "files", "anew", "of", "words"
_MOVED = (CommitConflict, LoadLost, SnapshotGone, LakeTampered)


class Adoptions:
    """Thread-safe. `publish` makes a load that is done the table of its name. One load at a time: memory is that of a
    batch of rows."""

    def __init__(self, board: Board, publish: Callable[[HotLoad, Mapping[Bucket, int]], None]) -> None:
        self._board, self._hot, self._publish = board, board.hot, publish
        self._lock = threading.Lock()
        self._refused: OrderedDict[TablePath, LakewardError] = OrderedDict()
        self._words: dict[TablePath, str] = {}
        self.thread = BackgroundThread("adoptions", self.run, EVERY_S)

    def begin(self, table: TableInfo, lake: str, warnings: tuple[str, ...] = ()) -> AdoptionStatus:
        """Durable when it returns; the answer passes the warnings on. Raises `TableAlreadyExists`, `TableLoading`."""
        self._refused.pop(table.path, None)
        note, rows = self._note(table, lake, anew=0)
        load = self._hot.begin_load(table, note, rows)
        return replace(status_of(load), warnings=warnings)

    def status(self, path: TablePath) -> AdoptionStatus:
        """Raises what a load was refused for, and `TableNotFound`."""
        load = self.find(path)
        if load is not None:
            return status_of(load, self._words.get(path, ""))
        if path in self._refused:
            raise self._refused[path]
        self._hot.load_table(path)
        return AdoptionStatus(path=path, is_done=True)

    def find(self, path: TablePath) -> HotLoad | None:
        return next((load for load in self._hot.loads() if load.table.path == path), None)

    def cancel(self, path: TablePath) -> bool:
        """True where a load was under way; nothing is left of it."""
        with self._lock:
            load = self.find(path)
            if load is not None:
                self._hot.drop_load(load)
                self._refused[path] = InvalidRequest(what=f"adopting {path}", reason="the table was dropped meanwhile")
            return load is not None

    # ---- the work ------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Takes every load that is under way as far as it goes."""
        for load in self._hot.loads():
            path = load.table.path
            try:
                self._take(load)
            except LakewardError as error:
                if error.retryable or isinstance(error, CommitUnknown):
                    self._words[path] = f"{error}; it is tried again"
                else:
                    self._refuse(load, error)
            except Exception as error:
                self._words[path] = f"{error}; it is tried again"
                raise

    def _take(self, load: HotLoad) -> None:
        self._words.pop(load.table.path, None)
        try:
            if self._load_rows(load):
                self._finish(load)
        except _MOVED as error:
            self._begin_anew(load, error)

    def _load_rows(self, load: HotLoad) -> bool:
        """False: the server stops, or somebody dropped the load."""
        storage, at = self._storage(load), load.note[_SNAPSHOT]
        reader = storage.open_reader(load.table).pinned()
        if at is None:
            return True
        looked_at, clock = self._board.clock.monotonic(), self._board.clock
        assert isinstance(reader, SupportsFileOrder), f"{storage.name} has no order of files"
        batches = reader.scan_files(SnapshotId(at), columns=load.table.schema.names, first=load.files)
        with closing(_whole(batches)) as scanned:
            for number, batch in scanned:
                _check_nulls(load.table, batch)
                with self._lock:
                    if self.thread.stopping.is_set() or load not in self._hot.loads():
                        return False
                    if number > load.files:
                        load.save(number)
                    load.put(pa.Table.from_batches([batch]))
                self.thread.beat()
                if clock.monotonic() - looked_at > _LOOK_S:
                    looked_at = clock.monotonic()
                    self._check_head(load, storage)
        load.save(int(load.note[_FILES]))
        return True

    def _check_head(self, load: HotLoad, storage: LakeStorage) -> None:
        base, at = storage.open_reader(load.table).load_base(), load.note[_SNAPSHOT]
        if base.token is None and base.head != at:
            reason = f"main is at {base.head}, not at {at}"
            raise CommitConflict(table=str(load.table.path), round_id="adoption", reason=reason)

    def _finish(self, load: HotLoad) -> None:
        """Each step may be taken again."""
        table, storage, at = load.table, self._storage(load), load.note[_SNAPSHOT]
        with self._lock:
            if load not in self._hot.loads():
                return
            ends = load.seal(storage.open_reader(table).load_base().offsets)
            fault_point("load.sealed", table=str(load.table.path))
            self._check_head(load, storage)
            catalog = storage.catalog()
            catalog.reconcile_schema(table)
            catalog.create(table, adopt=True)
            upkeep = storage.open_maintenance(table)
            assert isinstance(upkeep, SupportsTakeOver), f"{storage.name} takes over nothing"
            upkeep.take_over(ends, None if at is None else SnapshotId(at))
            fault_point("load.taken-over", table=str(load.table.path))
            self._publish(load, ends)

    def _begin_anew(self, load: HotLoad, error: LakewardError) -> None:
        anew, path = int(load.note[_ANEW]) + 1, load.table.path
        if anew > _MOST_ANEW:
            reason = f"others committed to it {anew} times while its rows were loaded; stop them for as long"
            raise InvalidRequest(what=f"adopting {path}", reason=reason) from error
        note, rows = self._note(load.table, load.note[_LAKE], anew=anew)
        if isinstance(error, SnapshotGone | LakeTampered) and note[_SNAPSHOT] == load.note[_SNAPSHOT]:
            raise error
        with self._lock:
            if load in self._hot.loads():
                _log.info("adopting %s begins anew: %s", path, error)
                load.begin_anew({**note, _OF: rows, _WORDS: f"begun anew: {error}"})

    def _refuse(self, load: HotLoad, error: LakewardError) -> None:
        path = load.table.path
        _log.warning("%s is not adopted: %s", path, error)
        with self._lock:
            if load in self._hot.loads():
                self._refused[path] = error
                self._hot.drop_load(load)
            self._words.pop(path, None)
            while len(self._refused) > _REMEMBERED:
                self._refused.popitem(last=False)

    def _note(self, table: TableInfo, lake: str, anew: int) -> tuple[dict[str, Any], int]:
        """The note that a load of the lake table in its present state must keep, and its number of rows, exact or
        approximate."""
        reader = self._board.lakes(lake).open_reader(table).pinned()
        head = reader.load_snapshot()
        files = 0 if head is None else len(reader.files(head.snapshot_id))
        at = None if head is None else head.snapshot_id
        return {_SNAPSHOT: at, _LAKE: lake, _FILES: files, _ANEW: anew}, reader.totals().rows

    def _storage(self, load: HotLoad) -> LakeStorage:
        return self._board.lakes(load.note[_LAKE])


def status_of(load: HotLoad, words: str = "") -> AdoptionStatus:
    return AdoptionStatus(
        path=load.table.path,
        rows=load.rows,
        of_rows=int(load.note[_OF]),
        files=load.files,
        of_files=int(load.note[_FILES]),
        words="; ".join(w for w in (load.note.get(_WORDS, ""), words) if w),
    )


def _whole(batches: Iterator[tuple[int, pa.RecordBatch]]) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """A generator, whose end closes what it reads."""
    yield from batches


def _check_nulls(table: TableInfo, batch: pa.RecordBatch) -> None:
    """Raises `InvalidTable`."""
    for name in table.descriptor.primary_key:
        nulls = batch.column(name).is_null()
        if count := pc.sum(nulls).as_py():
            others = [n for n in batch.schema.names if n != name][:3]
            sample = batch.select(others).filter(nulls).slice(0, 1).to_pylist()[0]
            spelled = ", ".join(f"{k} = {v!r}" for k, v in sample.items())
            reason = f"{count} rows or more have no value in {name}, such as the one with {spelled or 'nothing else'}"
            raise InvalidTable(table=str(table.path), field="primary key", value=name, reason=reason)
