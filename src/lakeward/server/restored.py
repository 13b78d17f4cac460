# SPDX-License-Identifier: Apache-2.0
"""Data folders that came back from a backup, or were moved together with their lake."""

from __future__ import annotations

import json
import logging
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeward.errors import LakeFolderMoved
from lakeward.hot.embedded.log.durable import sync_folder, write_whole
from lakeward.model import usable
from lakeward.protocol.codec import decode, encode

if TYPE_CHECKING:
    from lakeward.lake.iceberg.plugin import IcebergLakeStorage

log = logging.getLogger(__name__)

MARK = "restored.json"


@dataclass(frozen=True, kw_only=True)
class LakeRecord:
    """A lake as the server of a backup had it. `settings` are those of lakeward.toml, without secrets; `defaults` what
    the format took where they named no place; `place` where its tables lie. `folder`: that of a lake that
    a backup can copy, empty for others."""

    format: str
    place: str
    settings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def all_settings(self) -> dict[str, str]:
        """With them a server on any folder opens the same lake."""
        return {**self.settings, **{k: v for k, v in self.defaults.items() if k not in self.settings}}


@dataclass(frozen=True, kw_only=True)
class RestoredMark:
    backup: str
    begun_at_ms: int
    lakes: Mapping[str, LakeRecord] = field(default_factory=dict)


def write_mark(data: Path, mark: RestoredMark) -> None:
    write_whole(data / MARK, json.dumps(encode(mark)).encode())


def load_mark(data: Path) -> RestoredMark | None:
    """None: an ordinary folder, or none yet. Raises `InvalidRequest` for a mark that somebody edited,
    `DataFolderUnusable`."""
    with usable(data):
        try:
            text = (data / MARK).read_text()
        except FileNotFoundError:
            return None
    return decode(RestoredMark, json.loads(text))


def remove_mark(data: Path) -> None:
    """Safe to repeat."""
    (data / MARK).unlink(missing_ok=True)
    sync_folder(data)


def as_toml(settings: Mapping[str, str]) -> str:
    """Lines of lakeward.toml, as part of one sentence."""
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())


def check_catalog_moved(lake: IcebergLakeStorage, data: Path) -> None:
    """The embedded catalog names files by absolute paths, and its folder may have been moved with them. Raises
    `LakeFolderMoved`."""
    from lakeward.lake.iceberg.connect.sqlcatalog import IcebergSqlCatalog

    catalog = lake.connection.catalog
    assert isinstance(catalog, IcebergSqlCatalog)
    check_moved(list(catalog.pointers().values()), data.resolve())


def move_catalog_forward(lake: IcebergLakeStorage) -> None:
    """The folder is a restored copy: its catalog may name metadata files that have newer versions. Safe to repeat.
    Raises `LakeHistoriesDiffer`, `LakeUnavailable`, before any pointer moves."""
    from lakeward.lake.iceberg.connect.forward import move_forward

    for moved in move_forward(lake.connection):
        level = logging.WARNING if moved.after is None else logging.INFO
        log.log(level, "lake table %s: %s", moved.table, moved.words)


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
