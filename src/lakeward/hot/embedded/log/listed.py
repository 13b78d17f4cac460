# SPDX-License-Identifier: Apache-2.0
"""Which segments a log folder holds, in a small file of its own: one that is gone with all its files is missed.

The list and the synced mark are there from a log's beginning, and each tells when the other is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lakeward.hot.embedded.log.durable import find_file, seal, write_whole

LIST_MAGIC = b"LWS1"


def list_path(folder: Path) -> Path:
    return folder / "segments"


def find_listed(folder: Path) -> list[int] | None:
    """The bases; None in a folder of an earlier version, or when the file is damaged."""
    body = find_file(list_path(folder), LIST_MAGIC)
    return None if body is None else [int(base) for base in json.loads(body)]


def save_listed(folder: Path, bases: Sequence[int], *, sync: bool) -> None:
    """A new segment need not be in it until the mark passes it; one that goes must be out of it before (`sync`)."""
    write_whole(list_path(folder), seal(LIST_MAGIC, json.dumps(list(bases)).encode()), sync=sync)
