# SPDX-License-Identifier: Apache-2.0
"""The server's sources: their configuration, how far each has come, and what its ingest process reports.

A source has a folder: `source.json`, which holds its position, and files of groups that are on their way. A group is
committed by `commit.json`, which names its files and the position after it; its rows are stored then, and the new
`source.json` replaces the old one last. A start completes a group that a crash cut off, so the rows of a group and the
position behind them are stored together or not at all.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakeward.errors import InvalidRequest, SourceExists, SourceFenced, SourceGroupLost, SourceNotFound, SourceOutOfStep
from lakeward.hot.embedded.log.durable import make_folder, sync_file, sync_folder, write_whole
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Clock, fault_point
from lakeward.protocol.auth import Token
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.sources import (
    CommitGroup,
    CreateSource,
    HoldSource,
    SourceBeat,
    SourceInfo,
    SourceStatus,
)
from lakeward.server.ingest.groups import GroupFiles, GroupPut

log = logging.getLogger(__name__)

SILENT_MS = 30_000
"""An ingest process reports every few seconds."""

MOST_SOURCES = 1_000
MOST_STATE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SOURCE, _COMMIT, _FILES = "source.json", "commit.json", "files"


@dataclass
class _Held:
    """One source in memory. `lock` is held while its files or its position change."""

    folder: Path
    info: SourceInfo
    lock: threading.RLock = field(default_factory=threading.RLock)
    beat: SourceBeat | None = None
    beat_at_ms: int | None = None
    hold: HoldSource | None = None
    hold_until_ms: int = 0


class SourceDesk:
    """Thread-safe. One per server."""

    def __init__(self, store: EmbeddedStore, data: Path, clock: Clock) -> None:
        """Completes the groups that a crash cut off."""
        self.store, self.folder, self.clock = store, data / "sources", clock
        self._lock = threading.RLock()
        self._sources: dict[str, _Held] = {}
        for path in sorted(self.folder.glob(f"*/{_SOURCE}")):
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            info = decode(SourceInfo, json.loads(path.read_bytes()))
        except (OSError, ValueError, InvalidRequest) as error:
            log.error("%s cannot be read, and its source is left out: %s", path, error)
            return
        held = self._sources[info.name] = _Held(path.parent, info)
        if (path.parent / _COMMIT).exists():
            try:
                self._complete(held)
            except Exception as error:  # noqa: BLE001 - the server starts; the next group of this source tries again
                log.error("source %s: its last group is not stored yet: %s", info.name, error)
        else:
            shutil.rmtree(path.parent / _FILES, ignore_errors=True)

    # ---- what people ask -----------------------------------------------------------------------------------------
    def create(self, asked: CreateSource, token: Token) -> SourceStatus:
        """Raises `SourceExists`, `InvalidRequest`."""
        if not _NAME.fullmatch(asked.name):
            reason = "a name has letters, digits, _ . and -, up to 100, and does not begin with . or -"
            raise InvalidRequest(what=f"source {asked.name[:100]!r}", reason=reason)
        with self._lock:
            held = self._sources.get(asked.name)
            if held is not None:
                same = (held.info.kind, held.info.config) == (asked.kind, dict(asked.config))
                if asked.if_not_exists and same and _may_use(held.info, token):
                    return self._status(held)
                raise SourceExists(source=asked.name)
            if len(self._sources) >= MOST_SOURCES:
                raise InvalidRequest(what="sources", reason=f"there are {MOST_SOURCES} already; drop some")
            info = SourceInfo(
                source_id=uuid.uuid4().hex,
                name=asked.name,
                kind=asked.kind,
                owner=token.name,
                config=dict(asked.config),
                created_at_ms=self.clock.now_ms(),
            )
            held = _Held(self.folder / info.source_id, info)
            make_folder(held.folder)
            _save(held.folder, info)
            self._sources[info.name] = held
            return self._status(held)

    def listed(self, token: Token) -> list[SourceStatus]:
        with self._lock:
            sources = sorted(self._sources.values(), key=lambda held: held.info.name)
        return [self._status(held) for held in sources if _may_use(held.info, token)]

    def show(self, name: str, token: Token) -> SourceStatus:
        return self._status(self._find(name, token))

    def drop(self, name: str, token: Token) -> None:
        held = self._find(name, token)
        with self._lock, held.lock:
            (held.folder / _SOURCE).unlink(missing_ok=True)
            sync_folder(held.folder)
            self._sources.pop(name, None)
            shutil.rmtree(held.folder, ignore_errors=True)

    def pause(self, name: str, token: Token, *, paused: bool) -> SourceStatus:
        """A resume ends a stop as well: the ingest process tries again."""
        held = self._find(name, token)
        with held.lock:
            self._set(held, replace(held.info, paused=paused))
            if not paused and held.beat is not None:
                held.beat = replace(held.beat, error="")
            return self._status(held)

    def hold(self, name: str, asked: HoldSource, token: Token) -> SourceStatus:
        held = self._find(name, token)
        with held.lock:
            held.hold = None if asked.position is None else asked
            held.hold_until_ms = self.clock.now_ms() + round(1000 * min(asked.lease_s, 600.0))
            return self._status(held)

    # ---- what ingest processes ask -------------------------------------------------------------------------------
    def open(self, name: str, token: Token) -> SourceStatus:
        """A new epoch: processes that opened the source before are refused from now on."""
        held = self._find(name, token)
        with held.lock:
            self._complete(held)
            shutil.rmtree(held.folder / _FILES, ignore_errors=True)
            self._set(held, replace(held.info, epoch=held.info.epoch + 1))
            held.beat = None
            return self._status(held)

    def write(self, name: str, file: str, epoch: int, at: int, body: bytes, token: Token) -> int:
        """Appends to a file of the next group at byte `at`; what is behind it is discarded. Safe to repeat. The size
        afterwards."""
        held = self._find(name, token)
        if not _NAME.fullmatch(file):
            raise InvalidRequest(what=f"file {file[:100]!r} of a group", reason="use letters, digits, _ . and -")
        with held.lock:
            self._check_epoch(held, epoch)
            folder = held.folder / _FILES
            make_folder(folder)
            fd = os.open(folder / file, os.O_CREAT | os.O_RDWR, 0o600)
            with open(fd, "r+b") as opened:
                size = opened.seek(0, os.SEEK_END)
                if at > size:
                    raise SourceGroupLost(source=name, file=file)
                opened.truncate(at)
                opened.seek(at)
                opened.write(body)
            return at + len(body)

    def commit(self, name: str, asked: CommitGroup, token: Token) -> SourceStatus:
        """Stores the group's rows and the position behind them. Sent again, it changes nothing."""
        held = self._find(name, token)
        with held.lock:
            self._check_epoch(held, asked.epoch)
            self._complete(held)
            if asked.group == held.info.group:
                return self._status(held)
            if asked.group != held.info.group + 1:
                raise SourceOutOfStep(source=name, got=asked.group, expected=held.info.group + 1)
            after = replace(held.info, group=asked.group, state=dict(asked.state))
            if len(json.dumps(encode(after))) > MOST_STATE_BYTES:
                raise InvalidRequest(what=f"state of source {name}", reason=f"it takes over {MOST_STATE_BYTES} bytes")
            files = _files(held.folder, name, asked)
            GroupPut(self.store, held.info.source_id, asked.group).check(files, token)
            if files.paths:
                for path in files.paths:
                    sync_file(path)
                sync_folder(held.folder / _FILES)
                order = {"source": encode(after), "files": [path.name for path in files.paths]}
                write_whole(held.folder / _COMMIT, json.dumps(order).encode())
                fault_point("source.committed", source=name)
                self._complete(held)
            else:
                self._set(held, replace(after, committed_at_ms=self.clock.now_ms()))
            return self._status(held)

    def beat(self, name: str, asked: SourceBeat, token: Token) -> SourceStatus:
        held = self._find(name, token)
        with held.lock:
            self._check_epoch(held, asked.epoch)
            held.beat, held.beat_at_ms = asked, self.clock.now_ms()
            return self._status(held)

    # ---- inside --------------------------------------------------------------------------------------------------
    def _complete(self, held: _Held) -> None:
        """Stores a committed group, if there is one. A crash in between leaves it to the next call."""
        path = held.folder / _COMMIT
        if not path.exists():
            return
        order = json.loads(path.read_bytes())
        after = decode(SourceInfo, order["source"])
        put = GroupPut(self.store, after.source_id, after.group)
        files = [held.folder / _FILES / file for file in order["files"]]
        with self.store.group_commits:
            if after.group > held.info.group:
                put.apply(GroupFiles(files))
                fault_point("source.stored", source=after.name)
                now = replace(
                    held.info,
                    group=after.group,
                    state=after.state,
                    rows=held.info.rows + put.rows,
                    tables=tuple(sorted({*held.info.tables, *put.tables})),
                    committed_at_ms=self.clock.now_ms(),
                )
                self._set(held, now)
            path.unlink()
            sync_folder(held.folder)
        shutil.rmtree(held.folder / _FILES, ignore_errors=True)

    def _set(self, held: _Held, info: SourceInfo) -> None:
        _save(held.folder, info)
        held.info = info

    def _find(self, name: str, token: Token) -> _Held:
        with self._lock:
            held = self._sources.get(name)
        if held is None or not _may_use(held.info, token):
            raise SourceNotFound(source=name)
        return held

    def _check_epoch(self, held: _Held, epoch: int) -> None:
        if epoch != held.info.epoch:
            raise SourceFenced(source=held.info.name, epoch=epoch, current=held.info.epoch)

    def _status(self, held: _Held) -> SourceStatus:
        beat, now = held.beat, self.clock.now_ms()
        is_silent = held.beat_at_ms is None or now - held.beat_at_ms > SILENT_MS
        hold = held.hold if held.hold is not None and held.hold_until_ms > now else None
        phase = "waiting" if beat is None or is_silent else "stopped" if beat.error else beat.phase
        status = SourceStatus(
            source=held.info,
            phase="paused" if held.info.paused else phase,
            beat_at_ms=held.beat_at_ms,
            hold_at=None if hold is None else hold.position,
        )
        if beat is None:
            return status
        return replace(status, position=beat.position, lag=beat.lag, error=beat.error, held_at=beat.held_at)


def _files(folder: Path, name: str, asked: CommitGroup) -> GroupFiles:
    paths = []
    for file in asked.files:
        path = folder / _FILES / file.name
        if not _NAME.fullmatch(file.name) or not path.is_file() or path.stat().st_size != file.size:
            raise SourceGroupLost(source=name, file=file.name[:100])
        paths.append(path)
    return GroupFiles(paths)


def _may_use(info: SourceInfo, token: Token) -> bool:
    return not token.tables or info.owner == token.name


def _save(folder: Path, info: SourceInfo) -> None:
    write_whole(folder / _SOURCE, json.dumps(encode(info)).encode())
