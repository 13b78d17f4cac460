# SPDX-License-Identifier: Apache-2.0
"""Our data files, and the files of their deleted rows."""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from lance.file import LanceFileReader
from lance.fragment import DeletionFile

from lakeward.errors import LakeTampered
from lakeward.lake.lance.table import DELETIONS
from lakeward.lake.metadatabounds import positions_in
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OFFSET, Bucket, OffsetRange, Offsets, OffsetSet, RoundId

PREFIX = "lakeward-"
FACTS_KEY = "lakeward"
"""Key in the metadata of a data file's own schema: Lance has no place for it in a fragment."""

_KEPT = 100_000
_AT_ONCE = 16


@dataclass(frozen=True)
class FileFacts:
    """Facts of a data file. `bucket` None: it has rows of several buckets. `since`: the version that added its rows; 0
    if another engine wrote them."""

    bucket: Bucket | None = None
    offsets: OffsetRange | None = None
    since: int = 0

    def to_text(self) -> str:
        assert self.bucket is not None
        assert self.offsets is not None
        return json.dumps([str(self.bucket), self.offsets.start, self.offsets.stop, self.since])

    @classmethod
    def parse(cls, text: str) -> FileFacts:
        bucket, start, stop, since = json.loads(text)
        return cls(Bucket.parse(bucket), OffsetRange(start, stop), since)


def round_prefix(round_id: RoundId) -> str:
    return f"{PREFIX}{round_id}-"


def is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def load_facts(paths: Sequence[str], storage_options: Mapping[str, str]) -> list[FileFacts | None]:
    """Loads the facts of data files; None for a file without facts. Files never change: each is read once. Raises
    `OSError`, `ValueError`."""
    options = tuple(sorted(storage_options.items()))
    if len(paths) < _AT_ONCE:
        return [_load(path, options) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda path: _load(path, options), paths))


@lru_cache(_KEPT)
def _load(path: str, options: tuple[tuple[str, str], ...]) -> FileFacts | None:
    schema = LanceFileReader(path, storage_options=dict(options)).metadata().schema
    text = (schema.metadata or {}).get(FACTS_KEY.encode())
    return None if text is None else FileFacts.parse(text.decode())


def read_offsets(path: str, storage_options: Mapping[str, str]) -> Offsets:
    """Reads the offset of every row, deleted rows included, in the file's order. Raises `OSError`, `ValueError`."""
    reader = LanceFileReader(path, storage_options=dict(storage_options), columns=[OFFSET])
    return np.asarray(reader.read_all().to_table().column(0).to_numpy(), np.int64)


_NAME = re.compile(r"\d+-\d+-(\d+)\.(?:arrow|bin)")
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), False)])
_OURS = 0x4C57
"""The upper 16 bits of our ids; then 32 bits of the round, and 16 random ones: a round may prepare more than once."""


def write_deletions(
    files: TableFiles, root: str, fragment_id: int, version: int, round_id: RoundId, positions: OffsetSet
) -> tuple[Any, int]:
    """Writes a deletion file; returns its entry in the fragment's metadata, and its size. The caller syncs its folder.
    Raises `OSError`."""
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
    """Whether it is one of our deletion files, or one of this round."""
    found = _NAME.fullmatch(path.removeprefix(f"{root}/{DELETIONS}/"))
    if found is None or int(found[1]) >> 48 != _OURS:
        return False
    return round_id is None or (int(found[1]) >> 16) & 0xFFFFFFFF == _round_bits(round_id)


def _round_bits(round_id: RoundId) -> int:
    return int.from_bytes(hashlib.sha256(round_id.encode()).digest()[:4], "big")
