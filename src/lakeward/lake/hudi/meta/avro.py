# SPDX-License-Identifier: Apache-2.0
"""Avro and commit metadata in Hudi's timeline and log blocks, with fastavro: records in container files, or single
values. Values of logical types are not converted.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

Schema = Any
"""Parsed JSON: a name, a list (union), or an object."""

_PARSED = "__fastavro_parsed__"
_BROKEN = (
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    StopIteration,
    struct.error,
    zlib.error,
    SchemaParseException,
)


def read_container(data: bytes) -> list[Any]:
    """Reads the records of a container file. Raises `ValueError` for a file that is not one, or is broken."""
    with _as_value_error("it is a broken Avro file"):
        return list(fastavro.reader(io.BytesIO(data)))


def write_container(schema: Schema, record: Mapping[str, Any]) -> bytes:
    """Encodes a container file with one record."""
    out = io.BytesIO()
    fastavro.writer(out, schema, [record])
    return out.getvalue()


def parse_bare(schema: Schema) -> Schema:
    """Parses a schema for repeated calls of `read_bare`. Raises `ValueError`."""
    with _as_value_error("it is not an Avro schema"):
        return fastavro.parse_schema(_without_logical_types(schema))


def read_bare(schema: Schema, data: bytes) -> Any:
    """Reads a single value. Raises `ValueError`."""
    is_parsed = isinstance(schema, dict) and _PARSED in schema
    parsed = schema if is_parsed else parse_bare(schema)
    with _as_value_error("it is not a value of its Avro schema"):
        return fastavro.schemaless_reader(io.BytesIO(data), parsed, None)


def _without_logical_types(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        nested = ("type", "items", "values")
        plain = {k: v for k, v in schema.items() if k != "logicalType"}
        for name in nested:
            if name in plain:
                plain[name] = _without_logical_types(plain[name])
        if "fields" in plain:
            plain["fields"] = [_without_logical_types(f) for f in plain["fields"]]
        return plain
    return schema


@contextmanager
def _as_value_error(what: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ValueError(f"{what}: {error!r}") from error


_TEXT = {"type": "string", "avro.java.string": "String"}
_SPACE = "org.apache.hudi.avro.model"


def _may(name: str, kind: Schema) -> Schema:
    return {"name": name, "type": ["null", kind], "default": None}


_STAT: Schema = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        *(_may(n, _TEXT) for n in ("fileId", "path", "prevCommit")),
        *(_may(n, "long") for n in ("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes")),
        _may("totalWriteErrors", "long"),
        _may("partitionPath", _TEXT),
        *(_may(n, "long") for n in ("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted")),
        *(_may(n, "long") for n in ("numInserts", "totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks")),
        _may("fileSizeInBytes", "long"),
        _may("logVersion", "int"),
        _may("logOffset", "long"),
        _may("baseFile", _TEXT),
        _may("logFiles", {"type": "array", "items": _TEXT, "default": None}),
        _may("cdcStats", {"type": "map", "values": "long", "avro.java.string": "String", "default": None}),
        _may("prevBaseFile", _TEXT),
        *(_may(n, "long") for n in ("minEventTime", "maxEventTime")),
        _may(
            "runtimeStats",
            {
                "type": "record",
                "name": "HoodieRuntimeStats",
                "fields": [_may(n, "long") for n in ("totalScanTime", "totalCreateTime", "totalUpsertTime")],
            },
        ),
        *(_may(n, "long") for n in ("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted")),
        _may("tempPath", _TEXT),
        _may("numUpdates", "long"),
    ],
}
_FIELDS = [
    _may(
        "partitionToWriteStats",
        {"type": "map", "values": {"type": "array", "items": _STAT}, "avro.java.string": "String"},
    ),
    _may("compacted", "boolean"),
    _may("extraMetadata", {"type": "map", "values": _TEXT, "avro.java.string": "String", "default": None}),
    {"name": "version", "type": ["int", "null"], "default": 1},
    _may("operationType", _TEXT),
]
_COMMIT: Schema = {"type": "record", "name": "HoodieCommitMetadata", "namespace": _SPACE, "fields": _FIELDS}
_REPLACE: Schema = {
    "type": "record",
    "name": "HoodieReplaceCommitMetadata",
    "namespace": _SPACE,
    "fields": [
        *_FIELDS,
        _may(
            "partitionToReplaceFileIds",
            {"type": "map", "values": {"type": "array", "items": _TEXT}, "avro.java.string": "String"},
        ),
    ],
}
_COUNTS = tuple(f["name"] for f in _STAT["fields"] if f["type"][1] == "long" and not f["name"].endswith("EventTime"))


def write_stat(
    *, file_id: str, partition: str, name: str, size: int, inserts: int = 0, updates: int = 0, deletes: int = 0
) -> dict[str, Any]:
    """Statistics of one new file. Its name shows whether it is a log file."""
    log = re.search(r"\.log\.(\d+)", name)
    stat: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
    stat |= {"totalLogFiles": None, "logOffset": 0 if log else None, "logVersion": int(log[1]) if log else None}
    stat |= {
        "fileId": file_id,
        "path": f"{partition}/{name}" if partition else name,
        "prevCommit": "null",
        "partitionPath": partition,
        "numWrites": inserts + updates,
        "numInserts": inserts,
        "numUpdateWrites": updates,
        "numDeletes": deletes,
        "totalWriteBytes": size,
        "fileSizeInBytes": size,
    }
    return {**stat, "baseFile": "", "logFiles": [name]} if log else stat


def encode_metadata(
    stats: Sequence[Mapping[str, Any]],
    *,
    operation: str,
    extra: Mapping[str, str],
    replaced: Mapping[str, Sequence[str]] | None = None,
) -> bytes:
    """Commit metadata. `replaced`: file groups by partition, for a replacecommit."""
    by_partition: dict[str, list[Mapping[str, Any]]] = {}
    for stat in stats:
        by_partition.setdefault(stat["partitionPath"], []).append(stat)
    body: dict[str, Any] = {
        "partitionToWriteStats": by_partition,
        "compacted": operation == "COMPACT",
        "extraMetadata": dict(extra),
        "version": 1,
        "operationType": operation,
    }
    if replaced is None:
        return write_container(_COMMIT, body)
    return write_container(_REPLACE, {**body, "partitionToReplaceFileIds": {k: list(v) for k, v in replaced.items()}})


def encode_compaction_plan() -> bytes:
    """Plan of a compaction that is completed at once, so no engine executes the plan."""
    return write_container(_PLAN, {"operations": [], "extraMetadata": {}, "version": 2})


_PLAN: Schema = {
    "type": "record",
    "name": "HoodieCompactionPlan",
    "namespace": _SPACE,
    "fields": [
        _may(
            "operations",
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "HoodieCompactionOperation",
                    "fields": [{"name": "baseInstantTime", "type": ["null", _TEXT]}],
                },
            },
        ),
        _may("extraMetadata", {"type": "map", "values": _TEXT, "avro.java.string": "String"}),
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}
