# SPDX-License-Identifier: Apache-2.0
"""One Hudi table's folder: its properties, its timeline, its data files, and our own files."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from lakeward.errors import LakeTampered, LakeUnavailable
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.meta.columns import decode_columns
from lakeward.lake.hudi.meta.history import ArchivedInstant, archive, put_over
from lakeward.lake.hudi.meta.properties import COLUMNS_KEY, METADATA_KEYS, format_properties, parse_properties
from lakeward.lake.hudi.meta.slices import FOLDER, HudiFile, list_data
from lakeward.lake.hudi.meta.timeline import HISTORY, HudiInstant, HudiTimeline
from lakeward.lake.tablefiles import LocalFiles, TableFiles
from lakeward.lake.warehouse import missing_table
from lakeward.model import Column, RoundId, fault_point

OWN_FOLDER = ".lakeward"
_OWNER = "lakeward"
_LOOK_S = 0.01
WAIT_S = 60.0


def hudi_lock(root: str) -> str:
    """Path of the lock file, as in `FileSystemBasedLockProvider` by default."""
    return os.path.join(root, FOLDER, "lock")


@contextmanager
def locked(root: str, table: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Takes the lock. Raises `LakeUnavailable` if another writer has it for too long."""
    folder = os.path.join(root, FOLDER, OWN_FOLDER)
    os.makedirs(folder, exist_ok=True)
    deadline = time.monotonic() + wait_s
    handle = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        path = hudi_lock(root)
        _flock(handle, path, table, deadline)
        _take(path, table, deadline)
        fault_point("hudi.locked", table=table)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
    finally:
        os.close(handle)


def _flock(handle: int, path: str, table: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            reason = f"{_holder(path)} of Lakeward is changing it; if that process is suspended, resume it, or end it"
            _wait(table, deadline, reason)


def _take(path: str, table: str, deadline: float) -> None:
    told = json.dumps({"lockOwner": _OWNER, "host": socket.gethostname(), "pid": os.getpid()}).encode()
    while not LocalFiles().put_exclusively(path, told):
        if _is_ours(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        else:
            _wait(table, deadline, f"another engine holds {path}; remove that file if no writer is running")


def _is_ours(path: str) -> bool:
    return _told(path).get("lockOwner") == _OWNER


def _holder(path: str) -> str:
    told = _told(path)
    return f"process {told['pid']} on {told['host']}" if {"pid", "host"} <= told.keys() else "another process"


def _told(path: str) -> dict[str, object]:
    """Reads a lock file; empty if it does not exist, or is not in our form."""
    try:
        with open(path, "rb") as source:
            told = json.loads(source.read(4096))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _wait(table: str, deadline: float, reason: str) -> None:
    if time.monotonic() >= deadline:
        raise LakeUnavailable(lake="hudi", what=f"lock {table}", reason=reason)
    time.sleep(_LOOK_S)


class HudiTable:
    """One table. `name`: the table's, for messages. Nothing is cached: each call reads the folder."""

    def __init__(self, files: TableFiles, root: str, name: str) -> None:
        self.files, self.root, self.name = files, root, name

    @property
    def properties_path(self) -> str:
        return os.path.join(self.root, FOLDER, "hoodie.properties")

    @property
    def timeline_folder(self) -> str:
        return os.path.join(self.root, FOLDER, "timeline")

    @property
    def own_folder(self) -> str:
        return os.path.join(self.root, FOLDER, OWN_FOLDER)

    def staging(self, round_id: RoundId | str) -> str:
        """Returns the folder of a round's staged files, which engines ignore."""
        return os.path.join(self.own_folder, "rounds", str(round_id))

    def exists(self) -> bool:
        with lake_errors(self.name, "look for"):
            return self.files.read(self.properties_path) is not None

    def load_properties(self) -> dict[str, str]:
        """Raises `LakeTableGone`."""
        with lake_errors(self.name, "read the properties of"):
            text = self.files.read(self.properties_path)
        if text is None:
            raise missing_table("hudi", self.files, os.path.dirname(os.path.dirname(self.root)), self.name)
        return parse_properties(text)

    def load_columns(self, properties: Mapping[str, str]) -> tuple[Column, ...]:
        """Returns the user's columns. Raises `LakeTampered`."""
        try:
            return decode_columns(properties[COLUMNS_KEY])
        except (KeyError, ValueError) as error:
            raise LakeTampered(table=self.name, snapshot="none", what=COLUMNS_KEY, reason=str(error)) from error

    def load_timeline(self) -> HudiTimeline:
        return HudiTimeline.load(self.files, self.timeline_folder, self.name)

    def list_data(self) -> list[HudiFile]:
        with lake_errors(self.name, "list files of"):
            return list(list_data(self.root))

    def lock(self) -> AbstractContextManager[None]:
        return locked(self.root, self.name)

    def change_properties(self, change: Callable[[dict[str, str]], Mapping[str, str]]) -> bool:
        """Called under the lock; false if there was nothing to change."""
        with self.lock():
            have = self.load_properties()
            wanted = dict(change(dict(have)))
            if wanted == have:
                return False
            self._put_properties(wanted)
            return True

    def drop_metadata_table(self) -> None:
        """Called under the lock. Switches Hudi's metadata table off, as Hudi's own writers do with
        `hoodie.metadata.enable=false`. Its writers maintain files and statistics there that its readers trust, and our
        commits do not update it. Another engine may build it again."""
        properties = self.load_properties()
        if any(properties.get(key) for key in METADATA_KEYS):
            self._put_properties({k: v for k, v in properties.items() if k not in METADATA_KEYS})
        _remove_tree(os.path.join(self.root, FOLDER, "metadata"))

    def load_own(self, name: str) -> Any:
        """Reads a small JSON file of Lakeward; None if it does not exist."""
        with lake_errors(self.name, f"read {name} of"):
            text = self.files.read(os.path.join(self.own_folder, name))
        try:
            return None if text is None else json.loads(text)
        except ValueError as error:
            raise LakeTampered(table=self.name, snapshot="none", what=name, reason=str(error)) from error

    def put_own(self, name: str, body: Any) -> None:
        self.files.put(os.path.join(self.own_folder, name), json.dumps(body))

    def expired(self) -> set[str]:
        """Snapshots that expired, though the timeline still has them."""
        return set(self.load_own("expired") or ())

    def forget(self, snapshots: Iterable[str], timeline: HudiTimeline) -> None:
        """Called under the lock. Adds expired snapshots, and removes those that left the timeline meanwhile."""
        known = {i.requested for i in timeline.snapshots}
        self.put_own("expired", sorted((self.expired() | set(snapshots)) & known))

    def archive(self, instants: Sequence[HudiInstant]) -> None:
        """Called under the lock: archives instants, so that the timeline begins after them. A crash in the middle
        leaves some in both places, which does no harm."""
        bodies = [self.files.read_bytes(os.path.join(self.timeline_folder, i.name)) or b"" for i in instants]
        entries = [
            ArchivedInstant(i.requested, i.completed, i.action, b) for i, b in zip(instants, bodies, strict=True)
        ]
        archive(self.files, os.path.join(self.timeline_folder, HISTORY), entries)
        names = self.files.names(self.timeline_folder)
        for instant in instants:
            instant_files = [n for n in names if n.startswith((f"{instant.requested}.", f"{instant.requested}_"))]
            # the completed file last: without it the others would look like a failed commit
            for name in sorted(instant_files, key=lambda n: n == instant.name):
                self.files.delete(os.path.join(self.timeline_folder, name))
                self.files.delete(os.path.join(self.timeline_folder, f".{name}.crc"))

    def _put_properties(self, values: Mapping[str, str]) -> None:
        put_over(self.files, self.properties_path, format_properties(values))


def _remove_tree(folder: str) -> None:
    """Deletes a folder. It is renamed first, so that no reader sees a part of it. Also deletes renamed folders of
    processes that died."""
    aside = f"{folder}.lakeward-removed"
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(folder, aside)
        shutil.rmtree(aside)
