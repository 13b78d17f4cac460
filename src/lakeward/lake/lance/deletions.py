# SPDX-License-Identifier: Apache-2.0
"""Deletion files: positions of a fragment's deleted rows, as the format lays them down. Ours are known by their id."""

from __future__ import annotations

import hashlib
import io
import re
import secrets
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from lance.fragment import DeletionFile

from lakeward.errors import LakeTampered
from lakeward.lake.lance.table import DELETIONS
from lakeward.lake.metadatabounds import positions_in
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OffsetSet, RoundId

_NAME = re.compile(r"\d+-\d+-(\d+)\.(?:arrow|bin)")
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), False)])
_OURS = 0x4C57
"""The upper 16 bits of an id of ours; then 32 of its round, and 16 by chance: a round may prepare more than once."""


def write_deletions(
    files: TableFiles, root: str, fragment_id: int, version: int, round_id: RoundId, positions: OffsetSet
) -> tuple[Any, int]:
    """What the fragment's metadata says of it, and its size. Its folder is the caller's to sync. Raises `OSError`."""
    mark = (_OURS << 48) | (_round_bits(round_id) << 16) | secrets.randbits(16)
    facts = DeletionFile(
        id=mark, read_version=version, file_type="array", num_deleted_rows=len(positions), base_id=None
    )
    sink = io.BytesIO()
    with ipc.new_file(sink, _SCHEMA, options=ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_batch(pa.record_batch([pa.array(positions.values.astype(np.uint32))], schema=_SCHEMA))
    path = f"{root}/{facts.path(fragment_id)}"
    files.put(path, sink.getvalue())
    return facts, len(sink.getvalue())


def load_deletions(files: TableFiles, path: str, table: str) -> OffsetSet:
    """Raises `OSError`, `LakeTampered`."""
    data = files.read_bytes(path)
    if data is None:
        raise FileNotFoundError(path)
    try:
        if path.endswith(".bin"):
            from pyroaring import BitMap

            return OffsetSet(positions_in(BitMap.deserialize(data)))
        return OffsetSet(ipc.open_file(data).read_all().column(0).to_numpy().astype(np.int64))
    except (ValueError, pa.ArrowException) as error:
        raise LakeTampered(table=table, snapshot="", what=path.rpartition("/")[2], reason=str(error)) from error


def is_deletion_of(path: str, root: str, round_id: RoundId | None = None) -> bool:
    """Is it one of ours, or of this round?"""
    found = _NAME.fullmatch(path.removeprefix(f"{root}/{DELETIONS}/"))
    if found is None or int(found[1]) >> 48 != _OURS:
        return False
    return round_id is None or (int(found[1]) >> 16) & 0xFFFFFFFF == _round_bits(round_id)


def _round_bits(round_id: RoundId) -> int:
    return int.from_bytes(hashlib.sha256(round_id.encode()).digest()[:4], "big")
