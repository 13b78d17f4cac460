# SPDX-License-Identifier: Apache-2.0
"""A data folder that another process holds, and one on a disk that is full."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.errors import DiskFull
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from tests.unit.hot.embedded.yard import B0, Yard, read, rows


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.close()


def test_another_process_is_refused_too(yard: Yard) -> None:
    yard.open()
    script = (
        "import sys; from pathlib import Path; from lakeward.hot.embedded.datafolder import DataFolder; "
        "DataFolder.open(Path(sys.argv[1]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(yard.folder)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert "DataFolderLocked" in ended.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 4 MB."""
    target = tmp_path / "disk"
    target.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(target)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, yard: Yard) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    options = StoreOptions.with_settings({"server.disk.reserve": "0", "log.segment.file-size": "256kb"})
    store, table = EmbeddedStore.open(small_disk / "data", options, yard.clock), yard.table()
    try:
        store.create_table(table)
        acknowledged = 0
        with pytest.raises(DiskFull):
            for n in range(100):
                store.append(table, B0, rows(n, text="x" * 50_000), WriterSequence(5, n))
                acknowledged = n + 1
        assert 10 < acknowledged < 60
        assert len(read(store, table)) == acknowledged
        with pytest.raises(DiskFull):
            store.append(table, B0, rows(acknowledged, text="x" * 50_000), WriterSequence(5, acknowledged))
        os.unlink(ballast)
        store.append(table, B0, rows(acknowledged, text="x" * 50_000), WriterSequence(5, acknowledged))
        assert [i for _, i in read(store, table)] == list(range(acknowledged + 1))
    finally:
        store.close()
