# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the table at one version as a Parquet file of actions, so that older log entries can be deleted."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.delta.meta.actions import Action, DeltaTableState
from lakeward.lake.tablefiles import TableFiles, sync

_TEXT, _TEXTS = pa.string(), pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", _TEXT),
        ("pathOrInlineDv", _TEXT),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ADD = [
    ("path", _TEXT),
    ("partitionValues", _TEXTS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", _TEXT),
    ("tags", _TEXTS),
    ("deletionVector", _VECTOR),
]
_METADATA = [
    ("id", _TEXT),
    ("name", _TEXT),
    ("description", _TEXT),
    ("format", pa.struct([("provider", _TEXT), ("options", _TEXTS)])),
    ("schemaString", _TEXT),
    ("partitionColumns", pa.list_(_TEXT)),
    ("configuration", _TEXTS),
    ("createdTime", pa.int64()),
]
_FEATURES = pa.list_(_TEXT)
_PROTOCOL = [
    ("minReaderVersion", pa.int32()),
    ("minWriterVersion", pa.int32()),
    ("readerFeatures", _FEATURES),
    ("writerFeatures", _FEATURES),
]
_SCHEMA = pa.schema(
    [
        ("protocol", pa.struct(_PROTOCOL)),
        ("metaData", pa.struct(_METADATA)),
        ("txn", pa.struct([("appId", _TEXT), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        ("domainMetadata", pa.struct([("domain", _TEXT), ("configuration", _TEXT), ("removed", pa.bool_())])),
        ("add", pa.struct(_ADD)),
    ]
)
_MAPS = {"add": ("partitionValues", "tags"), "metaData": ("configuration",)}


def write_checkpoint(files: TableFiles, path: str, state: DeltaTableState) -> int:
    """Writes a checkpoint in one step; returns its number of actions. Raises `OSError`."""
    actions: list[Action] = [{"protocol": state.protocol}, {"metaData": state.metadata}]
    actions += [{"txn": t} for t in state.transactions.values()]
    actions += [{"domainMetadata": d} for d in state.domains.values()]
    actions += [{"add": {**f.action, "dataChange": False}} for f in state.files.values()]
    output = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([_spelled(a) for a in actions], _SCHEMA), output, compression="snappy")
    files.put(path, output.getvalue())
    sync([path])
    return len(actions)


def read_checkpoint(files: TableFiles, paths: Sequence[str]) -> Iterator[Action]:
    """Reads the actions of a checkpoint. Raises `OSError`, `LakeMetadataTooLarge`."""
    for path in paths:
        with files.open_metadata(path) as source, pq.ParquetFile(source) as file:
            files.bounds.check_parquet(path, file.metadata)
            names, read = set(file.schema_arrow.names), 0
            for batch in file.iter_batches(columns=[n for n in _SCHEMA.names if n in names], use_threads=False):
                read += batch.nbytes
                files.bounds.check_unpacked(path, read)
                for row in batch.to_pylist():
                    yield from (_read(kind, body) for kind, body in row.items() if body is not None)


def _spelled(action: Action) -> Action:
    """Converts an action for Arrow, which has lists of pairs for maps from text to text; a format's `options` are left
    out."""
    ((kind, body),) = action.items()
    maps = {k: list(body[k].items()) for k in _MAPS.get(kind, ()) if body.get(k) is not None}
    given = {"format": {"provider": "parquet", "options": []}} if kind == "metaData" else {}
    return {kind: {**body, **maps, **given}}


def _read(kind: str, body: dict[str, Any]) -> Action:
    maps = {k: dict(body[k]) for k in _MAPS.get(kind, ()) if body.get(k) is not None}
    known = {k: v for k, v in body.items() if v is not None and k not in ("stats_parsed", "partitionValues_parsed")}
    return {
        kind: {**known, **maps, **({"format": {"provider": "parquet", "options": {}}} if "format" in known else {})}
    }
