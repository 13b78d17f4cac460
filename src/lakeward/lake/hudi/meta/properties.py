# SPDX-License-Identifier: Apache-2.0
"""A table's `hoodie.properties`, which every engine reads first: Hudi's keys and our own."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Final

from lakeward.lake.hudi.meta.columns import encode_columns, to_avro_schema
from lakeward.model import BUCKET, OFFSET, TableDescriptor, TablePath

COLUMNS_KEY, PRIMARY_KEY = "lakeward.columns", "lakeward.primary-key"
METADATA_KEYS: Final = ("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight")
"""Partitions of Hudi's metadata table that exist, or are being built."""

VERSION_KEY, VERSION = "hoodie.table.version", "9"
"""The newest version that Hudi 1.1 and 1.2 write, and that hudi-rs 0.5 reads. In it every log file belongs to one
instant, and commits are ordered by completion."""

DOWNGRADE = f"Hudi's own `downgrade table --toVersion {VERSION}` takes it back"
RELIED_ON: Final = {
    VERSION_KEY: VERSION,
    "hoodie.timeline.layout.version": "2",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.populate.meta.fields": "true",
}
"""Properties that rounds depend on: another value stops them."""

_ESCAPED = re.compile(r"([\\=:#!\s])")
_UNSAFE = re.compile(r"[\x00-\x1f\"#%'*/:=?\\{\[\]^\x7f]")


def parse_properties(text: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        match = re.match(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", line.lstrip())
        if match:
            values[_unescape(match[1])] = _unescape(match[2])
    return values


def format_properties(values: Mapping[str, str]) -> str:
    lines = [f"{_escape(k)}={_escape(v)}" for k, v in sorted(values.items())]
    return "#Updated by Lakeward\n" + "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    """Spells text as java.util.Properties does: other characters by their numbers."""
    plain = _ESCAPED.sub(lambda m: {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(m[1], f"\\{m[1]}"), text)
    units = plain.encode("utf-16-be")
    pairs = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(u) if 0x20 <= u < 0x7F else f"\\u{u:04X}" for u in pairs)


def _unescape(text: str) -> str:
    plain = re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda m: (
            chr(int(m[1][1:], 16)) if len(m[1]) == 5 else {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(m[1], m[1])
        ),
        text,
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def first_properties(path: TablePath, descriptor: TableDescriptor) -> dict[str, str]:
    """Properties of a new table. Raises `UnsupportedType`."""
    is_pk, partitions = descriptor.is_pk, descriptor.partition_keys
    keys = record_key_fields(descriptor)
    if not partitions:
        generator = "NON_PARTITION"
    else:
        generator = "SIMPLE" if len(keys) == len(partitions) == 1 else "COMPLEX"
    return {
        "hoodie.table.name": path.table,
        "hoodie.database.name": path.database,
        "hoodie.table.checksum": str(zlib.crc32(f"{path.database}.{path.table}".encode())),
        "hoodie.table.type": "MERGE_ON_READ" if is_pk else "COPY_ON_WRITE",
        VERSION_KEY: VERSION,
        "hoodie.table.initial.version": VERSION,
        "hoodie.table.format": "native",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.recordkey.fields": ",".join(keys),
        "hoodie.table.keygenerator.type": generator,
        **({"hoodie.table.partition.fields": ",".join(partitions)} if partitions else {}),
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.populate.meta.fields": "true",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.create.schema": to_avro_schema(descriptor.schema.columns, path.table),
        COLUMNS_KEY: encode_columns(descriptor.schema.columns),
        PRIMARY_KEY: ",".join(descriptor.primary_key),
        **{lake_key(k): v for k, v in descriptor.properties.items()},
    }


def wrong_properties(found: Mapping[str, str]) -> dict[str, str]:
    """Returns properties that another engine changed and that stop rounds -> the expected value."""
    return {key: wanted for key, wanted in RELIED_ON.items() if found.get(key) != wanted}


def spell_properties(found: Mapping[str, str], due: Mapping[str, str]) -> list[str]:
    return [f"{key}: lake {found.get(key, 'none')}, wanted {value}" for key, value in due.items()]


def record_key_fields(descriptor: TableDescriptor) -> tuple[str, ...]:
    """Returns key fields; a log table's row is identified by its address."""
    return tuple(descriptor.primary_key) or (BUCKET, OFFSET)


def lake_key(key: str) -> str:
    """Maps a table property: `hudi.hoodie.X` is Hudi's own; properties that rounds read are ours; other keys are stored
    for the hot store."""
    if key.startswith("hudi.hoodie."):
        return key.removeprefix("hudi.")
    if key.startswith("hudi."):
        return f"lakeward.{key.removeprefix('hudi.')}"
    return key if key.startswith("lakeward.") else f"fluss.{key}"


def partition_path(keys: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Returns the folder of a partition, as Hudi spells it."""
    return "/".join(f"{k}={_escape_path(v)}" for k, v in zip(keys, values, strict=True))


def parse_partition_path(path: str) -> dict[str, str]:
    parts = (part.partition("=") for part in path.split("/") if part)
    return {key: re.sub(r"%([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), value) for key, _, value in parts}


def _escape_path(value: str) -> str:
    return _UNSAFE.sub(lambda m: f"%{ord(m[0]):02X}", value)
