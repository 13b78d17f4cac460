# SPDX-License-Identifier: Apache-2.0
"""What a process of the lab has of its machine, taken away and measured from outside: descriptors, disk, memory."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from pathlib import Path

from lakeward.model import free_bytes

DISK = "384m"
SPARE_HANDLES = 3


def mount_disk(folder: Path) -> bool:
    """A small disk of its own at this folder, where that is allowed; it is kept in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    return _run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder))


def unmount_disk(folder: Path) -> None:
    _run("umount", "-l", str(folder))


def _run(*command: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - our own
    return False


def fill_disk(folder: Path) -> None:
    """Not a byte is left."""
    with contextlib.suppress(OSError), (folder / "filler").open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free_bytes(folder)))


def empty_disk(folder: Path) -> None:
    (folder / "filler").unlink(missing_ok=True)


def limit_handles(pid: int) -> bool:
    """It may open hardly one file more than it has open; false where that cannot be."""
    try:
        held = len(os.listdir(f"/proc/{pid}/fd"))
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + SPARE_HANDLES, hard))
    except (OSError, AttributeError, ValueError):
        return False
    return True


def free_handles(pid: int) -> None:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))


def memory_bytes(pids: list[int]) -> int:
    """What these processes hold together; 0 where /proc does not tell."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total
