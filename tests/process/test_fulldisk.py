# SPDX-License-Identifier: Apache-2.0
"""A disk without a free byte: reads, state and a start go on in the space kept for them; then errors are typed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lakeward.coordinator.state.statestore import StateStore
from lakeward.errors import DiskFull
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward_testing.clock import ManualClock
from tests.unit.hot.embedded.yard import B0, Yard, read, rows

OPTIONS = StoreOptions.with_settings({"server.disk.reserve": "32mb"})
"""Of which a 16th is the ballast: 2 MB."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 48 MB."""
    target = tmp_path / "disk"
    target.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(target)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def change(state: StateStore, value: str) -> None:
    with state.transaction():
        state.set_meta("test", value * 1000)


def test_reads_state_and_a_start_go_on(disk: Path, tmp_path: Path) -> None:
    yard, data = Yard(tmp_path), disk / "data"
    store = EmbeddedStore.open(data, OPTIONS, ManualClock())
    log, keyed = yard.table(name="log"), yard.table(name="keyed", primary_key=("id",))
    for table in (log, keyed):
        store.create_table(table)
    store.append(log, B0, rows(1, 2))
    store.upsert(keyed, B0, rows(1, 2))
    store.hot_table(keyed)._services.open_files.close_unused(idle_s=-1.0)
    state = StateStore.open(data / "coordinator.db", ballast=store.ballast)
    assert (data / "ballast").stat().st_size == 2 << 20
    fill(disk)
    big = rows(3, text="x" * (3 << 20))
    with pytest.raises(DiskFull):
        store.append(log, B0, big)
    with pytest.raises(DiskFull):
        store.upsert(keyed, B0, big)
    change(state, "a")
    assert len(read(store, log)) == len(read(store, keyed)) == 2
    assert store.lookup(keyed, B0, rows(1, 2).select(["id"])).num_rows == 2
    store.pause_writes(log, "no room")
    store.close()
    store = EmbeddedStore.open(data, OPTIONS, ManualClock())
    assert (len(read(store, log)), store.hot_table(log).paused) == (2, "no room")

    fill(disk)  # the rest of it
    with pytest.raises(DiskFull, match=rf"{data}.*free some space"):
        for n in range(200):
            change(state, str(n))
    with pytest.raises(DiskFull, match="free some space"):
        for n in range(200):
            store.pause_writes(log, f"{n}" * 2000)
    assert len(read(store, log)) == 2

    (disk / "filler").unlink()
    change(state, "b")
    store.pause_writes(log, None)
    assert store.append(log, B0, rows(3)).start == 2
    store.upkeep.tend_files()
    assert (data / "ballast").exists()
    state.close()
    store.close()


def test_a_start_that_finds_no_room_says_where_and_what_to_do(disk: Path) -> None:
    data = disk / "data"
    data.mkdir()
    fill(disk)
    with pytest.raises(DiskFull, match=rf"{data}: 0 bytes are free.*free some space"):
        EmbeddedStore.open(data, OPTIONS, ManualClock())
