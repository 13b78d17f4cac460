# SPDX-License-Identifier: Apache-2.0
"""What lies below an error that others wrapped: a full disk, one that turned read-only, or neither."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from lakeward.errors import DataFolderUnusable, DiskFull, LakeUnavailable
from lakeward.model import find_disk_trouble, usable


def wrapped(cause: Exception) -> LakeUnavailable:
    """As a lake's plugin does it, two deep."""
    try:
        try:
            raise cause
        except Exception as error:
            raise RuntimeError("the driver failed") from error
    except RuntimeError as error:
        made = LakeUnavailable(lake="iceberg", what="commit", reason="it failed")
        made.__cause__ = error
        return made


def test_a_full_disk_is_found_below_what_others_raise() -> None:
    found = find_disk_trouble(wrapped(OSError(errno.ENOSPC, "No space left on device", "/data/x")))
    assert isinstance(found, DiskFull)
    assert (found.where, found.retryable) == ("/data/x", True)
    assert isinstance(find_disk_trouble(OSError(errno.EDQUOT, "quota")), DiskFull)


def test_a_full_database_is_a_full_disk(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as db:
        db.execute("pragma max_page_count = 3")
        db.execute("create table t (x)")
        with pytest.raises(sqlite3.OperationalError) as told:
            db.execute("insert into t values (zeroblob(100000))")
    db.close()
    assert isinstance(find_disk_trouble(wrapped(told.value)), DiskFull)


def test_a_disk_that_turned_read_only_is_said() -> None:
    found = find_disk_trouble(wrapped(OSError(errno.EROFS, "Read-only file system", "/data/x")))
    assert isinstance(found, DataFolderUnusable)
    assert ("Read-only" in str(found), found.http_status) == (True, 503)


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EIO, "i/o"), OSError("no number")])
def test_anything_else_stays_what_it_is(error: Exception) -> None:
    assert find_disk_trouble(wrapped(error)) is None
    with pytest.raises(type(error)), usable(Path("/data")):
        raise error
