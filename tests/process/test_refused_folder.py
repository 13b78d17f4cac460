# SPDX-License-Identifier: Apache-2.0
"""Data folders that the server's user may not read or write, and disks that are read-only: said in words."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeward.coordinator.state.statestore import StateStore
from lakeward.errors import DataFolderUnusable
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from tests.unit.hot.embedded.yard import B0, Yard, read, rows

NOBODY = 65534

OPEN = """
import os, sys
from pathlib import Path
from lakeward.config import resolve
from lakeward.errors import LakewardError
from lakeward.server.process import LakewardServer

def make(folder):
    arguments = {{"server.data-dir": folder, "server.port": "0", "server.flight-port": "0"}}
    return LakewardServer(resolve(environment={{}}, arguments=arguments))

if os.getuid() == 0:  # the code need not be readable by everybody: whatever a server loads is loaded before
    warm = make(sys.argv[1])
    warm.start()
    warm.stop()
    os.setgroups([]), os.setgid({nobody}), os.setuid({nobody})
    os.environ["LOGNAME"] = "nobody"
for line in sys.stdin:
    try:
        server = make(line.strip())
        server.start()
        server.stop()
        print("opened", flush=True)
    except LakewardError as error:
        print(error.code, error, flush=True)
os._exit(0)
"""
Opens = Callable[[Path], str]


@pytest.fixture(scope="module")
def open_as_nobody() -> Iterator[Opens]:
    """What a server says that is started on a folder by a user without rights; one process tries them all."""
    with tempfile.TemporaryDirectory() as other:
        command = [sys.executable, "-c", OPEN.format(nobody=NOBODY), other]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            said, heard = child.stdout, child.stdin
            assert said is not None
            assert heard is not None

            def open_one(folder: Path) -> str:
                heard.write(f"{folder}\n")
                heard.flush()
                return said.readline().strip()

            yield open_one


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody may enter, with a data folder in it that belongs to nobody."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def give_to_nobody(folder: Path) -> None:
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


def take(path: Path, mode: int) -> None:
    """From nobody; root's own where there is a root."""
    os.chmod(path, mode)
    if os.getuid() == 0:
        os.chown(path, 0, 0)


@pytest.fixture
def data(home: Path, tmp_path: Path) -> Path:
    """With a table and a row in it."""
    yard = Yard(tmp_path)
    store = EmbeddedStore.open(home / "data")
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    store.close()
    yard.close()
    StateStore.open(home / "data" / "coordinator.db").close()
    (home / "data" / "audit").mkdir()
    give_to_nobody(home / "data")
    return home / "data"


def test_a_folder_that_cannot_be_made(home: Path, open_as_nobody: Opens) -> None:
    take(home, 0o555)
    told = open_as_nobody(home / "data")
    assert told.startswith("data-folder-unusable"), told
    assert (str(home / "data") in told, "Permission denied" in told, "name another folder" in told) == (True,) * 3


def test_a_folder_of_ones_own(data: Path, open_as_nobody: Opens) -> None:
    assert open_as_nobody(data) == "opened"


CASES: dict[str, Callable[[Path], Path]] = {
    "the folder": lambda data: data,
    "its tables": lambda data: data / "meta.db",
    "a table's rows": lambda data: next((data / "tables").glob("*/p0")),
    "the audit log's place": lambda data: data / "audit",
    "what the coordinator knows": lambda data: data / "coordinator.db",
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_cannot_be_opened_is_named_and_never_looks_empty(data: Path, case: str, open_as_nobody: Opens) -> None:
    place = CASES[case](data)
    take(place, 0o500 if place == data else 0o000)
    told = open_as_nobody(data)
    assert told.startswith("data-folder-unusable"), told
    assert (str(data) in told, "give that user the right" in told) == (True, True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "disk"
    target.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(target)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


def test_a_disk_that_is_read_only(disk: Path, tmp_path: Path) -> None:
    options = StoreOptions.with_settings({"server.disk.reserve": "1mb"})
    yard = Yard(tmp_path)
    store, table = EmbeddedStore.open(disk / "data", options), yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1, 2))
    store.close()
    remount(disk, "ro")
    with pytest.raises(DataFolderUnusable, match="Read-only file system; give that user"):
        EmbeddedStore.open(disk / "data", options)
    remount(disk, "rw")
    again = EmbeddedStore.open(disk / "data", options)
    assert len(read(again, table)) == 2
    again.close()
    yard.close()
