# SPDX-License-Identifier: Apache-2.0
"""Puts a snapshot under its number, where none is: this is the commit."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress

from lakeward.lake.paimon.history import PaimonSnapshot, mark_path, snapshot_numbers, snapshot_path, tag_path
from lakeward.lake.paimon.names import sync


def create(folder: str, new: PaimonSnapshot) -> bool:
    """Makes `snapshot-N`, then our tag and mark, which may lag behind after a crash, and the hint for other readers."""
    path, text = snapshot_path(folder, new.number), json.dumps(new.body, indent=2)
    if not put_exclusively(path, text):
        return False
    if _is_late(folder, new.number, os.stat(path).st_ctime_ns):
        os.unlink(path)
        return False
    for beside in (tag_path(folder), mark_path(folder)):
        _replace(beside, text)
    _replace(os.path.join(folder, "snapshot", "LATEST"), str(new.number))
    return True


def put_exclusively(path: str, text: str) -> bool:
    """By link(2), which fails where a file is, whoever made it; the name never shows half of one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    staged = _stage(path, text)
    try:
        os.link(staged, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(staged)
    sync([path])
    return True


def _is_late(folder: str, number: int, made_ns: int) -> bool:
    """Was the number free because its snapshot had expired? Whoever slept so long finds younger numbers that are older
    files."""
    for later in (n for n in snapshot_numbers(folder) if n > number):
        with suppress(FileNotFoundError):
            if os.stat(snapshot_path(folder, later)).st_ctime_ns < made_ns:
                return True
    return False


def _replace(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(_stage(path, text), path)


def _stage(path: str, text: str) -> str:
    """Beside it, under a name that nobody reads."""
    folder, name = os.path.split(path)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    with open(staged, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    return staged
