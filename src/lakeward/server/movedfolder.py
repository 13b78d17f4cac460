# SPDX-License-Identifier: Apache-2.0
"""A data folder that was moved together with its lake: recognised by metadata files that are gone from where the
catalog names them, and lie at the same place below the folder now."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from lakeward.errors import LakeFolderMoved


def check_moved(locations: Iterable[str], data: Path) -> None:
    """Raises `LakeFolderMoved`."""
    moved = Counter(old for location in locations if (old := find_old_folder(location, data)) is not None)
    if moved:
        ((old, tables),) = moved.most_common(1)
        parent = "" if old.parent.is_dir() else f"mkdir -p {shlex.quote(str(old.parent))} && "
        command = f"{parent}ln -s {shlex.quote(str(data))} {shlex.quote(str(old))}"
        raise LakeFolderMoved(old=str(old), new=str(data), tables=tables, command=command)


def find_old_folder(location: str, data: Path) -> Path | None:
    """Where the folder was when the file got its name; None for one that is there, elsewhere, or nowhere."""
    url = urlsplit(location)
    path = PurePosixPath(unquote(url.path))
    if url.scheme not in ("", "file") or Path(path).exists():
        return None
    for depth in range(1, len(path.parts)):
        if data.joinpath(*path.parts[depth:]).is_file():
            return Path(*path.parts[:depth])
    return None
