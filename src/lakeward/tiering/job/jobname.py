# SPDX-License-Identifier: Apache-2.0
"""A job's default name: host and a random part, kept in a file that is locked while a job uses it.

A job that comes back finds its old name and so its old leases; two jobs on one host never share one.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from pathlib import Path
from types import TracebackType

from lakeward.config.cache import cache_folder
from lakeward.model import JobName

SUFFIX = ".job"


class HeldName:
    """A name and the lock on its file; the lock ends with the process at the latest."""

    def __init__(self, name: JobName, handle: int | None) -> None:
        self.name, self._handle = name, handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> HeldName:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold_name(given: str | None, folder: Path | None = None) -> HeldName:
    """`given` is taken as it is: a newer instance of a chosen name supersedes the older one, on purpose."""
    if given is not None:
        return HeldName(JobName(given), None)
    home = (cache_folder() if folder is None else folder) / "jobs"
    home.mkdir(parents=True, exist_ok=True)
    prefix = f"{socket.gethostname().split('.')[0]}-"
    for path in [
        *sorted(home.glob(f"{prefix}*{SUFFIX}")),
        *(home / f"{prefix}{secrets.token_hex(3)}{SUFFIX}" for _ in range(20)),
    ]:
        handle = _try_lock(path)
        if handle is not None:
            return HeldName(JobName(path.name.removesuffix(SUFFIX)), handle)
    return HeldName(JobName(f"{prefix}{secrets.token_hex(3)}"), None)


def _try_lock(path: Path) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
