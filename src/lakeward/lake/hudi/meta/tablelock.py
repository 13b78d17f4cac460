# SPDX-License-Identifier: Apache-2.0
"""The lock under which a table is changed: Hudi's own lock file, so that its writers and ours wait for each other, and
an advisory lock of the system, which ends with its process.

Hudi's file outlives a writer that was killed. One of ours is known by its content: whoever has the system's lock knows
that its maker is gone, and takes it away. One of another engine is waited for, and never taken away.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakeward.errors import LakeUnavailable
from lakeward.lake.hudi.meta.slices import FOLDER
from lakeward.lake.tablefiles import LocalFiles
from lakeward.model import fault_point

OWN_FOLDER = ".lakeward"
_OWNER = "lakeward"
_LOOK_S = 0.01
WAIT_S = 60.0


def hudi_lock(root: str) -> str:
    """Where `FileSystemBasedLockProvider` has it unless it is told otherwise."""
    return os.path.join(root, FOLDER, "lock")


@contextmanager
def locked(root: str, table: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Raises `LakeUnavailable` when somebody else has it for too long."""
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
            reason = f"{_holder(path)} of Lakeward is changing it; if that one was stopped, let it go on, or end it"
            _wait(table, deadline, reason)


def _take(path: str, table: str, deadline: float) -> None:
    told = json.dumps({"lockOwner": _OWNER, "host": socket.gethostname(), "pid": os.getpid()}).encode()
    while not LocalFiles().put_exclusively(path, told):
        if _is_ours(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        else:
            _wait(table, deadline, f"another engine holds {path}; remove that file if no writer is at work any more")


def _is_ours(path: str) -> bool:
    return _told(path).get("lockOwner") == _OWNER


def _holder(path: str) -> str:
    told = _told(path)
    return f"process {told['pid']} on {told['host']}" if {"pid", "host"} <= told.keys() else "another process"


def _told(path: str) -> dict[str, object]:
    """What a lock file says; nothing where it is gone, or not spelled as ours are."""
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
