# SPDX-License-Identifier: Apache-2.0
"""A consistent copy of the store's part of the data folder while it runs, mostly of hard links.

The order carries the consistency. Upkeep stands still, so that no file goes. Keys come first, as snapshots that a log
beyond them rolls forward; then every log's end is taken under the locks of all logs at once; files below those ends
never change, and the last bytes of each active segment are copied. The database of tables and schemas comes last: it
knows every schema that a copied log names.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from lakeward.hot.embedded.hotbucket import HotBucket
from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.kv.recovery import ORIGIN
from lakeward.hot.embedded.log.active import MarkFile, SyncedMark
from lakeward.hot.embedded.log.segment import Segment, index_path, log_path, save_listed, writers_path
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import fault_point

_TRIES = 3
_COPIED_BYTES = 1 << 20
Ends = Mapping[str, Mapping[str, int]]
"""Table -> bucket -> the offset at which its log ends in the copy."""


@dataclass(frozen=True)
class _LogCut:
    bucket: HotBucket
    closed: tuple[Segment, ...]
    active: Segment


def stage_store(store: EmbeddedStore, data: Path, target: Path) -> Ends:
    """Copies the store into `target`, a new folder on the same disk. A crash leaves a folder that is not taken for a
    backup."""
    with store.upkeep.standing, store.group_commits:
        tables = store.hot_tables()
        for table in tables:
            for bucket in table.opened():
                _stage_rest(bucket, _beside(bucket.folder, data, target))
        fault_point("backup.before-cut")
        cuts = _cut(tables)
        for cut in cuts:
            _stage_log(cut, _beside(cut.bucket.folder, data, target) / "log")
        if (data / "remote").is_dir():
            shutil.copytree(data / "remote", target / "remote", copy_function=link_or_copy)
        copy_database(data / "meta.db", target / "meta.db")
        shutil.copyfile(data / "format.json", target / "format.json")
        for source in (data / "sources").glob("*/source.json"):
            copied = _beside(source, data, target)
            copied.parent.mkdir(parents=True)
            shutil.copyfile(source, copied)
    ends: dict[str, dict[str, int]] = {}
    for cut in cuts:
        ends.setdefault(str(cut.bucket.table.path), {})[str(cut.bucket.bucket)] = cut.active.stop
    return ends


def copy_database(source: Path, target: Path) -> None:
    """SQLite's own way to copy a database that is in use: what was committed is in it, whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copied:
        live.backup(copied)


def link_or_copy(source: str | Path, target: str | Path) -> str:
    """For files that never change."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return str(target)


def _beside(folder: Path, data: Path, target: Path) -> Path:
    """The store may know its folder by a path that begins elsewhere."""
    return target / folder.resolve().relative_to(data.resolve())


def _cut(tables: Sequence[HotTable]) -> list[_LogCut]:
    """Where every log ends, at one moment: no put is half in the copy of one bucket and missing in another's."""
    buckets = [b for t in tables for b in t.opened() if b.failure is None]
    with ExitStack() as held:
        return [_LogCut(b, *held.enter_context(b.log.held())) for b in buckets]


def _stage_rest(bucket: HotBucket, target: Path) -> None:
    """Copies the files beside the log; of a damaged bucket all files, since it takes no writes."""
    if bucket.failure is not None:
        shutil.copytree(bucket.folder, target)
        return
    target.mkdir(parents=True)
    if (bucket.folder / "remote.json").is_file():
        shutil.copyfile(bucket.folder / "remote.json", target / "remote.json")
    if (bucket.folder / "kv").is_dir():
        _stage_keys(bucket.folder / "kv", target / "kv")


def _stage_keys(folder: Path, target: Path) -> None:
    """The newest snapshot: KV is built from it and the log. One that is taken away meanwhile has a newer one."""
    target.mkdir()
    if (folder / ORIGIN).is_file():
        shutil.copyfile(folder / ORIGIN, target / ORIGIN)
    for attempt in range(_TRIES):
        snapshots = sorted(p for p in (folder / "snapshots").glob("[0-9]*") if p.is_dir())
        if not snapshots:
            return
        copied = target / "snapshots" / snapshots[-1].name
        try:
            shutil.copytree(
                snapshots[-1], copied, copy_function=link_or_copy, ignore=shutil.ignore_patterns("LOCK", "LOG*")
            )
        except (FileNotFoundError, shutil.Error):
            shutil.rmtree(copied, ignore_errors=True)
            if attempt == _TRIES - 1:
                raise
        else:
            return


def _stage_log(cut: _LogCut, target: Path) -> None:
    source, active = cut.bucket.log.place.folder, cut.active
    target.mkdir(parents=True)
    for segment in cut.closed:
        link_or_copy(log_path(source, segment.base), log_path(target, segment.base))
        with suppress(FileNotFoundError):
            link_or_copy(index_path(source, segment.base), index_path(target, segment.base))
    for base in (*(s.base for s in cut.closed), active.base):
        with suppress(FileNotFoundError):
            link_or_copy(writers_path(source, base), writers_path(target, base))
    _copy_bytes(log_path(source, active.base), log_path(target, active.base), active.size)
    save_listed(target, [*(s.base for s in cut.closed), active.base], sync=False)
    mark = MarkFile(target)
    mark.write(SyncedMark(active.base, active.size, active.stop), is_listed=True)
    mark.close()


def _copy_bytes(source: Path, target: Path, size: int) -> None:
    with source.open("rb") as live, target.open("wb") as copied:
        while size > 0 and (part := live.read(min(size, _COPIED_BYTES))):
            copied.write(part)
            size -= len(part)
