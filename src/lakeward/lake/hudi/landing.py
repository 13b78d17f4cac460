# SPDX-License-Identifier: Apache-2.0
"""Lands a commit under the table's lock: writes a note of the commit, requests and begins the instant, moves the files
to the folders that Hudi reads, and completes the instant.

Only completing it makes the commit visible. A process that ends before leaves its note: the next holder of the lock
moves the files back and removes the instant, so that the same request can be sent again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeward.errors import LakeUnavailable
from lakeward.lake.hudi.ground import COMPLETED_KEY, INSTANT_KEY, MARK
from lakeward.lake.hudi.meta.avro import encode_compaction_plan, encode_metadata, write_stat
from lakeward.lake.hudi.meta.slices import FOLDER
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.meta.timeline import HudiInstant, HudiTimeline, new_instant
from lakeward.lake.hudi.writer import StagedFile
from lakeward.lake.tablefiles import sync
from lakeward.model import RoundId, fault_point
from lakeward.protocol.codec import Packed

NOTE = "landing"
COMPACTION = "compaction"
_PARTITION_FILE = ".hoodie_partition_metadata"
_FIRST_FILES = {
    "commit": ("commit.requested", "inflight"),
    COMPACTION: ("compaction.requested", "compaction.inflight"),
}
"""Action -> its name in files of instants that are not completed, if different."""


@dataclass(frozen=True)
class NewInstant(Packed):
    """A prepared commit. `head`: the name of the instant that must be the newest, "" for none."""

    packed_as: ClassVar = ("hudi-committable", 1)

    round_id: RoundId
    head: str
    requested: str
    action: str
    operation: str
    schema: str
    keys: dict[str, str]
    files: tuple[StagedFile, ...] = ()
    replaced: dict[str, tuple[str, ...]] | None = None

    @property
    def completed_as(self) -> str:
        return "commit" if self.action == COMPACTION else self.action

    @property
    def pending_names(self) -> tuple[str, str]:
        suffixes = _FIRST_FILES.get(self.action, (f"{self.action}.requested", f"{self.action}.inflight"))
        return f"{self.requested}.{suffixes[0]}", f"{self.requested}.{suffixes[1]}"

    def encode(self, keys: Mapping[str, str]) -> bytes:
        is_first = {f.name.startswith(".") for f in self.files} == {False}
        stats = [
            write_stat(
                file_id=f.file_id,
                partition=f.partition,
                name=f.name,
                size=f.size_bytes,
                inserts=f.rows if is_first else 0,
                updates=0 if is_first else f.rows,
                deletes=f.deletes,
            )
            for f in self.files
        ]
        extra = {"schema": self.schema, **keys}
        return encode_metadata(stats, operation=self.operation, extra=extra, replaced=self.replaced)


def head_name(timeline: HudiTimeline) -> str:
    return "" if timeline.head is None else timeline.head.name


def land(table: HudiTable, new: NewInstant, expire: Sequence[str] = ()) -> HudiInstant | str:
    """Called under the lock. Returns the instant, or the reason why its head is not the one it was prepared on. Raises
    `OSError`, `FaultInjected` if the outcome is unknown."""
    undo_unfinished(table)
    timeline = table.load_timeline()
    if head_name(timeline) != new.head:
        return "the table moved on since the base was read"
    if missing := [f.staged for f in new.files if not os.path.exists(f.staged)]:
        return f"files that it wrote are gone: {missing[0]}"
    if any(i.requested == new.requested for i in timeline.instants) or new.requested in timeline.pending:
        return f"another commit has the time {new.requested}"
    table.drop_metadata_table()
    _begin(table, new)
    fault_point("hudi.begun", round_id=new.round_id)
    _move_in(table, new)
    fault_point("hudi.moved-in", round_id=new.round_id)
    newest = max((*(i.completed for i in timeline.instants), *timeline.pending, new.requested))
    instant = HudiInstant(new_instant(newest), new.requested, new.completed_as)
    path = os.path.join(table.timeline_folder, instant.name)
    if not table.files.put_exclusively(path, new.encode(new.keys)):
        raise LakeUnavailable(lake="hudi", what=f"complete {instant.name}", reason="somebody else did")
    fault_point("hudi.completed", round_id=new.round_id)
    _finish(table, instant, new.keys)
    if expire:
        table.forget(set(expire) - {instant.requested}, table.load_timeline())
    return instant


def undo_unfinished(table: HudiTable) -> bool:
    """Called under the lock: finishes a commit that a process which ended had begun. True if there was one."""
    note = table.load_own(NOTE)
    if note is None:
        return False
    timeline = table.load_timeline()
    done = timeline.find(note["requested"])
    if done is not None:
        _finish(table, done, timeline.metadata(done).keys)
        return True
    moves = [(staged, os.path.join(table.root, path)) for staged, path in note["moves"]]
    for place in (place for move in moves for place in move):
        table.files.check(place)
    for staged, target in moves:
        if os.path.exists(target) and not os.path.exists(staged):
            os.rename(target, staged)
    fault_point("hudi.moved-back", round_id=note["round"])
    for name in reversed(note["pending"]):
        table.files.delete(os.path.join(table.timeline_folder, name))
    table.files.delete(os.path.join(table.own_folder, NOTE))
    return True


def _begin(table: HudiTable, new: NewInstant) -> None:
    note: dict[str, Any] = {
        "round": new.round_id,
        "requested": new.requested,
        "pending": new.pending_names,
        "moves": [[f.staged, f.path] for f in new.files],
    }
    table.put_own(NOTE, note)
    sync([os.path.join(table.own_folder, NOTE)])
    requested, inflight = (os.path.join(table.timeline_folder, n) for n in new.pending_names)
    plan = encode_compaction_plan() if new.action == COMPACTION else b""
    table.files.put_exclusively(requested, plan)
    table.files.put_exclusively(inflight, b"" if new.action == COMPACTION else new.encode({}))


def _move_in(table: HudiTable, new: NewInstant) -> None:
    folders = set()
    for file in new.files:
        target = os.path.join(table.root, file.path)
        if file.partition not in folders:
            _make_partition(table, file.partition, new.requested)
            folders.add(file.partition)
        os.rename(file.staged, target)
    sync([os.path.join(table.root, f.path) for f in new.files])


def _make_partition(table: HudiTable, partition: str, instant: str) -> None:
    """Writes the small file by which Hudi recognises a partition's folder."""
    folder = os.path.join(table.root, partition)
    os.makedirs(folder, exist_ok=True)
    depth = partition.count("/") + 1 if partition else 0
    text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={depth}\n"
    table.files.put_exclusively(os.path.join(folder, _PARTITION_FILE), text)


def _finish(table: HudiTable, instant: HudiInstant, keys: Mapping[str, str]) -> None:
    table.put_own(MARK, {**keys, INSTANT_KEY: instant.requested, COMPLETED_KEY: instant.completed})
    table.files.delete(os.path.join(table.own_folder, NOTE))


def make_folders(ground_root: str) -> None:
    """Writes the properties of a new table."""
    os.makedirs(os.path.join(ground_root, FOLDER, "timeline", "history"), exist_ok=True)
