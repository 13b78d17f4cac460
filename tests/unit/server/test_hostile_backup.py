# SPDX-License-Identifier: Apache-2.0
"""Backups that no server wrote: names and places that lead elsewhere, links, pipes, files without end."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import InvalidRequest
from lakeward.server.backups import list_backups, restore_backup

LAKE = {"format": "iceberg", "place": "x", "folder": "/x"}
NAME = "lakeward-20260101T000000Z-00000000"
Backup = Callable[..., Path]


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    """Makes one with a file and a lake of a file, whose manifest is changed."""

    def make(**change: Any) -> Path:
        folder = tmp_path / "saved" / NAME
        for place in ("files/a", "lakes/default/b"):
            (folder / place).parent.mkdir(parents=True)
            (folder / place).write_bytes(b"text")
        entry = [4, zlib.crc32(b"text")]
        manifest: dict[str, Any] = {
            "name": NAME,
            "version": "0.2.0",
            "begun_at_ms": 1,
            "files": {"a": entry},
            "lakes": {"default": {"format": "iceberg", "place": "x", "folder": str(tmp_path / "lake")}},
            "lake_files": {"default": {"b": entry}},
        }
        (folder / "backup.json").write_text(json.dumps({**manifest, **change}))
        return folder

    return make


def restore(tmp_path: Path, *, with_lake: bool = True) -> None:
    restore_backup(str(tmp_path / "saved"), tmp_path / "data", with_lake=with_lake)


def refused(tmp_path: Path, words: str) -> None:
    """Nothing of it stays."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidRequest, match=words):
        restore(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_one_that_is_whole_comes_back(backup: Backup, tmp_path: Path) -> None:
    backup()
    restore(tmp_path)
    assert (tmp_path / "data" / "a").read_bytes() == (tmp_path / "lake" / "b").read_bytes() == b"text"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../elsewhere"},
        {"name": "lakeward-another"},
        {
            "lake_files": {"../../outside": {}},
            "lakes": {"../../outside": {"format": "x", "place": "x", "folder": "/x"}},
        },
        {"lake_files": {"/etc": {}}, "lakes": {"/etc": {"format": "x", "place": "x", "folder": "/x"}}},
    ],
)
def test_names_that_lead_elsewhere(change: dict[str, Any], backup: Backup, tmp_path: Path) -> None:
    backup(**change)
    refused(tmp_path, "names another folder")


@pytest.mark.parametrize("folder", ["relative", "", "{tmp}/lake/../../../outside", "{tmp}/%2e%2e/x"])
def test_lakes_that_lie_upwards(folder: str, backup: Backup, tmp_path: Path) -> None:
    place = folder.replace("{tmp}", str(tmp_path))
    backup(lakes={"default": {"format": "iceberg", "place": "x", "folder": place}})
    refused(tmp_path, "leads upwards")


@pytest.mark.parametrize("path", ["../../../outside", "/etc/passwd", "x/../../y"])
@pytest.mark.parametrize("part", ["files", "lake_files"])
def test_files_that_lie_upwards(part: str, path: str, backup: Backup, tmp_path: Path) -> None:
    files = {path: [4, 1]}
    backup(**{part: files if part == "files" else {"default": files}})
    refused(tmp_path, "lies elsewhere")


@pytest.mark.parametrize("part", ["files/a", "lakes/default/b"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "endless"])
def test_files_that_are_none(part: str, kind: str, backup: Backup, tmp_path: Path) -> None:
    file = backup() / part
    file.unlink()
    match kind:
        case "link":
            file.symlink_to("/etc/passwd")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            with file.open("wb") as hole:
                hole.truncate(1 << 30)
    refused(tmp_path, "lies elsewhere" if kind in ("link", "pipe") else "is not what was written")


def test_more_bytes_than_the_disk_has(backup: Backup, tmp_path: Path) -> None:
    backup(files={"a": [1 << 60, 1]})
    refused(tmp_path, "has room for")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"name": 1}', '{"files": {"a": 5}}', "\x00", '{"lake_files": {"x": {}}}']
)
def test_manifests_that_no_server_wrote(text: str, backup: Backup, tmp_path: Path) -> None:
    (backup() / "backup.json").write_text(text)
    refused(tmp_path, f"backup {NAME}: its backup.json")
    with pytest.raises(InvalidRequest, match="not what a server wrote"):
        list_backups(str(tmp_path / "saved"))


def test_a_manifest_without_end(backup: Backup, tmp_path: Path) -> None:
    with (backup() / "backup.json").open("wb") as file:
        file.truncate(1 << 30)
    refused(tmp_path, "more than 256 MB")
