# SPDX-License-Identifier: Apache-2.0
"""Puts a snapshot under its number, where none is: this is the commit."""

from __future__ import annotations

import json
import os

from lakeward.lake.paimon.meta.history import PaimonSnapshot, mark_path, snapshot_numbers, snapshot_path, tag_path
from lakeward.lake.tablefiles import TableFiles
from lakeward.spi.snapshotkeys import TAG


def create(files: TableFiles, folder: str, new: PaimonSnapshot) -> bool:
    """Makes `snapshot-N`, then our tag and mark, which may lag behind after a crash, and the hint for other readers."""
    path, text = snapshot_path(folder, new.number), json.dumps(new.body, indent=2)
    if not files.put_exclusively(path, text):
        return False
    if _is_late(files, folder, new.number):
        files.delete(path)
        return False
    mark(files, folder, new)
    files.put(os.path.join(folder, "snapshot", "LATEST"), str(new.number))
    return True


def mark(files: TableFiles, folder: str, new: PaimonSnapshot) -> None:
    put_tag(files, folder, TAG, new)
    files.put(mark_path(folder), json.dumps(new.body, indent=2))


def put_tag(files: TableFiles, folder: str, name: str, tagged: PaimonSnapshot) -> None:
    """The snapshot's own text under the tag's name is a tag that is kept for ever; one that is found in another's tag
    has a time to live with it."""
    body = {k: v for k, v in tagged.body.items() if k not in ("tagCreateTime", "tagTimeRetained")}
    files.put(tag_path(folder, name), json.dumps(body, indent=2))


def _is_late(files: TableFiles, folder: str, number: int) -> bool:
    """Was the number free because its snapshot had expired? Whoever slept so long finds younger numbers that are older
    files."""
    later = [n for n in snapshot_numbers(files, folder) if n > number]
    made_at = files.made_at(snapshot_path(folder, number)) if later else None
    ages = [files.made_at(snapshot_path(folder, n)) for n in later]
    return made_at is not None and any(at is not None and at < made_at for at in ages)
