# SPDX-License-Identifier: Apache-2.0
"""Files that are on disk before the log names them, and files that come into being whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeward.errors import LakeUnavailable


def sync_file(path: Path) -> None:
    """The file, then the folder that names it."""
    for name in (path, path.parent):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create_whole(path: Path, data: bytes) -> bool:
    """False: there is one of that name. A crash leaves it whole, or not there beside a hidden temporary file."""
    with _written_aside(path, data) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
    sync_file(path)
    return True


def replace_whole(path: Path, data: bytes) -> None:
    with _written_aside(path, data) as aside:
        os.replace(aside, path)
    sync_file(path)


@contextmanager
def _written_aside(path: Path, data: bytes) -> Iterator[Path]:
    aside = path.parent / f".{path.name}.{uuid.uuid4()}.tmp"
    try:
        with aside.open("xb") as output:
            output.write(data)
            output.flush()
            os.fsync(output.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def lake_errors(table: str, what: str) -> Iterator[None]:
    """What the folder refuses may heal by itself."""
    try:
        yield
    except OSError as error:
        raise LakeUnavailable(lake="delta", what=f"{what} {table}", reason=str(error)) from error
