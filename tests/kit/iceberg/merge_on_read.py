# SPDX-License-Identifier: Apache-2.0
"""Another engine that deletes without rewriting files: deletion vectors as version 3 lays them out, and keys of one
partition. It writes tables of version 3, which stock PyIceberg does not.
"""

from __future__ import annotations

import json
import random
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from pyroaring import BitMap64

from lakeward.lake.iceberg.meta.manifests import (
    ManifestTarget,
    added,
    load_entries,
    load_manifests,
    unnumbered_rows,
    write_manifest_list,
)
from lakeward.lake.iceberg.meta.types import to_arrow_schema
from lakeward.lake.iceberg.meta.version import find_next_row_id, table_version
from lakeward.model import TablePath

_MAGIC = b"PFA1"
_LAYOUT: Literal[3] = 3
_OPERATIONS = {
    (ManifestContent.DELETES, True): Operation.DELETE,
    (ManifestContent.DATA, True): Operation.APPEND,
    (ManifestContent.DATA, False): Operation.REPLACE,
}


class MergeOnReadEngine:
    def __init__(self, catalog: Catalog, path: TablePath) -> None:
        self._catalog, self._name = catalog, (path.database, path.table)

    def delete_rows(self, positions: Mapping[str, Sequence[int]]) -> None:
        """Rows of data files by their positions, all vectors in one Puffin file."""
        table = self._catalog.load_table(self._name)
        self._land(table, write_vectors(table, positions, self._partitions(table)))

    def delete_keys(self, keys: pa.Table, like: str) -> None:
        """Older rows with these keys, in the partition that data file `like` lies in, and in no other."""
        table = self._catalog.load_table(self._name)
        schema = table.schema()
        path = f"{table.location()}/data/keys-{uuid.uuid4().hex}.parquet"
        output = table.io.new_output(path)
        with output.create() as out:
            pq.write_table(
                keys.cast(pa.schema([f for f in to_arrow_schema(schema) if f.name in keys.column_names])), out
            )
        data_file = DataFile.from_args(
            _table_format_version=_LAYOUT,
            content=DataFileContent.EQUALITY_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=self._partitions(table)[like],
            record_count=keys.num_rows,
            file_size_in_bytes=len(output),
            equality_ids=[schema.find_field(name).field_id for name in keys.column_names],
        )
        self._land(table, [data_file])

    def touch(self) -> None:
        """A snapshot on main in which nothing changes."""
        self._land(self._catalog.load_table(self._name), [])

    def rewrite(self, seed: int = 1) -> None:
        """All live rows into new files in one snapshot, in another order, under new row ids."""
        table = self._catalog.load_table(self._name)
        rows = table.scan().to_arrow()
        order = list(range(rows.num_rows))
        random.Random(seed).shuffle(order)
        new = _dataframe_to_data_files(table.metadata, rows.take(pa.array(order, pa.int64())), table.io)
        self._land(table, [DataFile(*f._data, *[None] * 4) for f in new], content=ManifestContent.DATA, keep=False)

    def insert(self, rows: pa.Table) -> None:
        table = self._catalog.load_table(self._name)
        new = _dataframe_to_data_files(table.metadata, rows, table.io)
        self._land(table, [DataFile(*f._data, *[None] * 4) for f in new], content=ManifestContent.DATA)

    def _partitions(self, table: Table) -> dict[str, Record]:
        manifests = load_manifests(table.io, table.metadata.current_snapshot())
        entries = [e for m in manifests if m.content == ManifestContent.DATA for e in load_entries(table.io, m)]
        return {e.data_file.file_path: e.data_file.partition for e in entries}

    def _land(
        self,
        table: Table,
        files: Sequence[DataFile],
        *,
        content: ManifestContent = ManifestContent.DELETES,
        keep: bool = True,
    ) -> None:
        """`keep`: what is live stays so."""
        metadata, head = table.metadata, table.metadata.current_snapshot()
        assert head is not None
        new_id, sequence = metadata.new_snapshot_id(), metadata.next_sequence_number()
        target = ManifestTarget(
            io=table.io,
            folder=f"{table.location()}/metadata",
            prefix="mor-",
            schema=table.schema(),
            snapshot_id=new_id,
            version=table_version(metadata),
        )
        manifests = load_manifests(table.io, head) if keep else []
        if files:
            manifests.append(_write_manifest(target, table, added([(f, None) for f in files], new_id), content))
        row_id = find_next_row_id(metadata)
        body = {
            "snapshot-id": new_id,
            "parent-snapshot-id": head.snapshot_id,
            "sequence-number": sequence,
            "manifest-list": write_manifest_list(target, head.snapshot_id, sequence, manifests, row_id),
            "summary": Summary(
                _OPERATIONS[content, keep] if files else Operation.APPEND,
                **{"added-position-deletes": str(sum(f.record_count for f in files if _is_positions(f)))},
            ),
            "schema-id": metadata.current_schema_id,
            **({} if row_id is None else {"first-row-id": row_id, "added-rows": unnumbered_rows(manifests)}),
        }
        main = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": new_id}
        updates = (AddSnapshotUpdate(snapshot=Snapshot.model_validate(body)), SetSnapshotRefUpdate.model_validate(main))
        self._catalog.commit_table(table, (), updates)


def _is_positions(file: DataFile) -> bool:
    return bool(file.content == DataFileContent.POSITION_DELETES)


def write_vectors(
    table: Table, positions: Mapping[str, Sequence[int]], partitions: Mapping[str, Record]
) -> list[DataFile]:
    """One Puffin file: the blobs, then a footer that says where each is."""
    path = f"{table.location()}/data/vectors-{uuid.uuid4().hex}.puffin"
    body, blobs = bytearray(_MAGIC), []
    for file, rows in positions.items():
        blob = _vector(rows)
        told = {"referenced-data-file": file, "cardinality": str(len(rows))}
        where = {"offset": len(body), "length": len(blob)}
        fields = {"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1}
        blobs.append({**fields, **where, "properties": told})
        body += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    body += _MAGIC + footer + struct.pack("<i", len(footer)) + bytes(4) + _MAGIC
    with table.io.new_output(path).create() as out:
        out.write(bytes(body))
    return [
        DataFile.from_args(
            _table_format_version=_LAYOUT,
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PUFFIN,
            partition=partitions[file],
            record_count=len(rows),
            file_size_in_bytes=len(body),
            referenced_data_file=file,
            content_offset=blob["offset"],
            content_size_in_bytes=blob["length"],
        )
        for (file, rows), blob in zip(positions.items(), blobs, strict=True)
    ]


def _vector(rows: Sequence[int]) -> bytes:
    """Length, magic and a 64-bit Roaring bitmap, then their checksum."""
    payload = b"\xd1\xd3\x39\x64" + BitMap64(rows).serialize()
    return struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))


def _write_manifest(
    target: ManifestTarget, table: Table, entries: Sequence[ManifestEntry], content: ManifestContent
) -> ManifestFile:
    spec, path = table.spec(), target.new_path("m")
    partition = NestedField(102, "partition", spec.partition_type(target.schema), required=True)
    data_file = type(DATA_FILE_TYPE[_LAYOUT])(
        *[partition if f.field_id == 102 else f for f in DATA_FILE_TYPE[_LAYOUT].fields]
    )
    fields = MANIFEST_ENTRY_SCHEMAS[_LAYOUT].fields
    layout = Schema(*[NestedField(2, "data_file", data_file, required=True) if f.field_id == 2 else f for f in fields])
    metadata = {
        "schema": target.schema.model_dump_json(),
        "partition-spec": json.dumps([f.model_dump(mode="json", by_alias=True) for f in spec.fields]),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(_LAYOUT),
        "content": content.name.lower(),
    }
    output = target.io.new_output(path)
    with AvroOutputFile[ManifestEntry](output, layout, "manifest_entry", metadata=metadata) as writer:
        writer.write_block(list(entries))
    return ManifestFile.from_args(
        _table_format_version=_LAYOUT,
        manifest_path=path,
        manifest_length=len(output),
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=-1,
        min_sequence_number=-1,
        added_snapshot_id=target.snapshot_id,
        added_files_count=len(entries),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(e.data_file.record_count for e in entries),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=None,
        key_metadata=None,
    )
