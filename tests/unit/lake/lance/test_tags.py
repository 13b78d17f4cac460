# SPDX-License-Identifier: Apache-2.0
"""Tags of a Lance table: the library reads ours, one is replaced whole, and a broken one costs no version."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lakeward.errors import SnapshotGone
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.tablefiles import LocalFiles
from lakeward.spi import TAG


@pytest.fixture
def table(tmp_path: Path) -> LanceTable:
    """Three versions: one row, two, three."""
    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), root)
    for number in (2, 3):
        lance.write_dataset(pa.table({"id": [number]}), root, mode="append")
    return LanceTable(LocalFiles(), root, "shop.t")


def test_the_library_reads_our_tags_and_we_read_its(table: LanceTable) -> None:
    table.tag("ours", 2)
    dataset = lance.dataset(table.root)
    dataset.tags.create("its", 1)
    assert {name: tag["version"] for name, tag in dataset.tags.list().items()} == {"ours": 2, "its": 1}
    assert table.tags.versions() == {"ours": 2, "its": 1}
    assert lance.dataset(table.root, version="ours").count_rows() == 2
    created = dataset.tags.list()["its"]["created_at"]
    table.tag("its", 3)
    moved = dataset.tags.list()["its"]
    assert (moved["version"], moved["created_at"]) == (3, created)
    dataset.tags.update("ours", 1)
    assert table.tags.versions() == {"ours": 1, "its": 3}
    table.tags.delete("its")
    table.tags.delete("its")
    assert list(dataset.tags.list()) == ["ours"]
    assert table.referenced(table.versions()) == {1}


def test_a_tag_is_replaced_whole(table: LanceTable, tmp_path: Path) -> None:
    """Never written in place: what fails in the middle leaves the tag of before."""
    table.tag("ours", 1)
    before = tmp_path / "before"
    os.link(table.tags.path("ours"), before)
    text = before.read_text()
    table.tag("ours", 2)
    assert before.read_text() == text
    assert os.listdir(os.path.dirname(table.tags.path("ours"))) == ["ours.json"]


def test_a_tag_of_a_version_that_is_gone_is_refused(table: LanceTable) -> None:
    with pytest.raises(SnapshotGone):
        table.tag("ours", 9)
    assert table.tags.versions() == {}


@pytest.mark.parametrize("left", [b"", b"{", b"\xff", b"[]", b'{"version": 1}', b'{"version": "1", "manifestSize": 9}'])
def test_a_broken_tag_keeps_every_version_until_it_is_replaced(table: LanceTable, left: bytes) -> None:
    """Nobody knows which one it named; but for our own tag, whose version the newest commit says."""
    for name, versions in ((TAG, set()), ("lakeward-cut-monday", {1, 2, 3})):
        table.tag(name, 1)
        table.files.put(table.tags.path(name), left)
        assert table.tags.versions() == {name: None}
        assert table.referenced(table.versions()) == versions
        table.tag(name, 2)
        assert table.referenced(table.versions()) == {2}
        assert lance.dataset(table.root, version=name).count_rows() == 2
        table.tags.delete(name)
