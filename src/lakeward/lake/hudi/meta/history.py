# SPDX-License-Identifier: Apache-2.0
"""Archived instants: Hudi's own archive, Parquet files that a manifest names. It records when each was completed, which
decides how log files are read.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.tablefiles import TableFiles

_VERSION, _MANIFEST = "_version_", "manifest_"
_MERGE_AT = 10
"""This many small files are merged into one, as in Hudi."""

_KEPT_MANIFESTS = 3
"""Manifests that stay, so that readers of an older one find its files."""

_TEXTS = ("instantTime", "completionTime", "action")
_AVRO = {
    "type": "record",
    "name": "HoodieLSMTimelineInstant",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        *(
            {"name": n, "type": ["null", "string"], "default": None}
            for n in ("instantTime", "completionTime", "action")
        ),
        *({"name": n, "type": ["null", "bytes"], "default": None} for n in ("metadata", "plan")),
        {"name": "version", "type": "int", "default": 1},
    ],
}
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.binary()) for name in ("metadata", "plan")),
        pa.field("version", pa.int32(), nullable=False),
    ],
    metadata={"parquet.avro.schema": json.dumps(_AVRO)},
)


@dataclass(frozen=True)
class ArchivedInstant:
    requested: str
    completed: str
    action: str
    metadata: bytes


def load_completions(files: TableFiles, folder: str) -> Mapping[str, str]:
    """Requested time -> completed time. Raises `OSError`, `ValueError`."""
    _, names = _manifest(files, folder)
    found: dict[str, str] = {}
    for name, size in names:
        found |= _completions(files, os.path.join(folder, name), size)
    return found


def archive(files: TableFiles, folder: str, instants: Sequence[ArchivedInstant]) -> None:
    """Called under the table's lock. Safe to repeat: duplicates of an instant count once."""
    number, names = _manifest(files, folder)
    rows = [
        {
            "instantTime": i.requested,
            "completionTime": i.completed,
            "action": i.action,
            "metadata": i.metadata,
            "plan": None,
            "version": 1,
        }
        for i in instants
    ]
    small = [(name, size) for name, size in names if name.endswith("_0.parquet")]
    remaining, level, tables = names, 0, [pa.Table.from_pylist(rows, _SCHEMA)]
    if len(small) >= _MERGE_AT:
        remaining, level = [n for n in names if n not in small], 1
        tables += [_read(files, os.path.join(folder, name)).select(_SCHEMA.names).cast(_SCHEMA) for name, _ in small]
    new = _write(files, folder, pa.concat_tables(tables), level)
    listed = [{"fileName": name, "fileLen": size} for name, size in (*(n for n in remaining if n[0] != new[0]), new)]
    put_over(files, os.path.join(folder, f"{_MANIFEST}{number + 1}"), json.dumps({"files": listed}))
    put_over(files, os.path.join(folder, _VERSION), str(number + 1))
    _clean(files, folder, number + 1)


def put_over(files: TableFiles, path: str, data: str | bytes) -> None:
    """Replaces a file, and the checksum file that Hadoop's local file system may have written."""
    files.put(path, data)
    where, name = os.path.split(path)
    files.delete(os.path.join(where, f".{name}.crc"))


def _write(files: TableFiles, folder: str, table: pa.Table, level: int) -> tuple[str, int]:
    ordered = table.sort_by([("instantTime", "ascending")])
    times = ordered.column("instantTime")
    name = f"{times[0]}_{times[-1]}_{level}.parquet"
    data = io.BytesIO()
    pq.write_table(ordered, data, compression="gzip", store_schema=False)
    put_over(files, os.path.join(folder, name), data.getvalue())
    return name, data.tell()


def _manifest(files: TableFiles, folder: str) -> tuple[int, list[tuple[str, int]]]:
    """Returns the number of the newest manifest, 0 without any, and the files that it names."""
    number = int(files.read(os.path.join(folder, _VERSION)) or 0)
    if not number:
        return 0, []
    body: Any = json.loads(files.read(os.path.join(folder, f"{_MANIFEST}{number}")) or '{"files": []}')
    return number, [(entry["fileName"], int(entry["fileLen"])) for entry in body["files"]]


def _clean(files: TableFiles, folder: str, newest: int) -> None:
    oldest = newest - _KEPT_MANIFESTS + 1
    used = set()
    for number in range(max(1, oldest), newest + 1):
        body = json.loads(files.read(os.path.join(folder, f"{_MANIFEST}{number}")) or '{"files": []}')
        used |= {entry["fileName"] for entry in body["files"]}
    for name in files.names(folder):
        is_old = name.startswith(_MANIFEST) and int(name.removeprefix(_MANIFEST)) < oldest
        if is_old or (name.endswith(".parquet") and name not in used):
            files.delete(os.path.join(folder, name))


@lru_cache(256)
def _completions(files: TableFiles, path: str, size: int) -> dict[str, str]:
    table = _read(files, path, ["instantTime", "completionTime"])
    requested, completed = (table.column(n).to_pylist() for n in ("instantTime", "completionTime"))
    return {r: c for r, c in zip(requested, completed, strict=True) if r and c}


def _read(files: TableFiles, path: str, columns: list[str] | None = None) -> pa.Table:
    with files.open_metadata(path) as source:
        file = pq.ParquetFile(source)
        files.bounds.check_parquet(path, file.metadata)
        return file.read(columns=columns, use_threads=False)
