# SPDX-License-Identifier: Apache-2.0
"""Puts a snapshot under its number, where none is: this is the commit."""

from __future__ import annotations

import json
import os

from lakeward.lake.paimon.meta.history import PaimonSnapshot, mark_path, snapshot_numbers, snapshot_path, tag_path
from lakeward.lake.tablefiles import TableFiles


def create(files: TableFiles, folder: str, new: PaimonSnapshot) -> bool:
    """Makes `snapshot-N`, then our tag and mark, which may lag behind after a crash, and the hint for other readers."""
    path, text = snapshot_path(folder, new.number), json.dumps(new.body, indent=2)
    if not files.put_exclusively(path, text):
        return False
    if _is_late(files, folder, new.number):
        files.delete(path)
        return False
    for beside in (tag_path(folder), mark_path(folder)):
        files.put(beside, text)
    files.put(os.path.join(folder, "snapshot", "LATEST"), str(new.number))
    return True


def _is_late(files: TableFiles, folder: str, number: int) -> bool:
    """Was the number free because its snapshot had expired? Whoever slept so long finds younger numbers that are older
    files."""
    later = [n for n in snapshot_numbers(files, folder) if n > number]
    made_at = files.made_at(snapshot_path(folder, number)) if later else None
    ages = [files.made_at(snapshot_path(folder, n)) for n in later]
    return made_at is not None and any(at is not None and at < made_at for at in ages)
