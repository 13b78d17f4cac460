# SPDX-License-Identifier: Apache-2.0
"""What Apache Fluss's own Iceberg plugin leaves in a table: its summary, its offsets file, equality deletes by key."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, UpdateMetrics, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from lakeward.lake.iceberg.meta.manifests import (
    ManifestTarget,
    added,
    load_manifests,
    write_manifest,
    write_manifest_list,
)
from lakeward.lake.iceberg.meta.types import to_arrow_schema
from lakeward.model import TablePath
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY


class FlinkJob:
    """Commits as the Flink tiering job does: no tag, no condition, an offsets file, keys in equality deletes."""

    def __init__(self, catalog: Catalog, path: TablePath, table_id: str) -> None:
        self._catalog, self._name, self._table_id = catalog, (path.database, path.table), table_id

    def commit(self, rows: pa.Table, offsets: Sequence[int], deleted_keys: pa.Table | None = None) -> int:
        """Rows with their system columns, the buckets' new offsets, and keys whose older rows go. Returns the
        snapshot's id.
        """
        table = self._catalog.load_table(self._name)
        files = list(_dataframe_to_data_files(table.metadata, rows, table.io)) if rows.num_rows else []
        deletes = [] if deleted_keys is None else [self._key_deletes(table, deleted_keys)]
        summary = {COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: self._write_offsets(table, offsets)}
        return self._land(table, files, deletes, summary)

    def commit_clean(
        self,
        rows: Mapping[int, pa.Table] | Sequence[tuple[int, pa.Table]],
        offsets: Sequence[int],
        deleted: Mapping[int, pa.Table] | None = None,
    ) -> int:
        """To a clean table without partitions: rows, and whole rows that go, by bucket. File names begin with it."""
        table = self._catalog.load_table(self._name)
        listed = rows.items() if isinstance(rows, Mapping) else rows
        files = [self._file(table, bucket, part) for bucket, part in listed]
        whole = [f.field_id for f in table.schema().fields]
        deletes = [self._file(table, bucket, part, whole) for bucket, part in (deleted or {}).items()]
        summary = {COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: self._write_offsets(table, offsets)}
        return self._land(table, files, deletes, summary)

    def _file(self, table: Table, bucket: int, rows: pa.Table, equality_ids: list[int] | None = None) -> DataFile:
        path = f"{table.location()}/data/{bucket:05d}-0-{uuid.uuid4()}-00001.parquet"
        output = table.io.new_output(path)
        with output.create() as out:
            pq.write_table(rows.cast(to_arrow_schema(table.schema())), out, store_schema=False)
        return DataFile.from_args(
            content=DataFileContent.DATA if equality_ids is None else DataFileContent.EQUALITY_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record() if table.spec().is_unpartitioned() else Record(bucket),
            record_count=rows.num_rows,
            file_size_in_bytes=len(output),
            equality_ids=equality_ids,
        )

    def _write_offsets(self, table: Table, offsets: Sequence[int]) -> str:
        path = f"{table.location()}/metadata/{uuid.uuid4()}.offsets"
        body = {"version": 1, "table_id": self._table_id, "bucket_offsets": list(offsets)}
        with table.io.new_output(path).create() as out:
            out.write(json.dumps(body).encode())
        return path

    def delete_by_older_schema(self, keys: pa.Table) -> int:
        """Deletes rows by values in a file that has the types of the table's first schema."""
        table = self._catalog.load_table(self._name)
        return self._land(table, [], [self._key_deletes(table, keys, table.metadata.schemas[0])], {})

    def _key_deletes(self, table: Table, keys: pa.Table, older: Schema | None = None) -> DataFile:
        schema = older or table.schema()
        ids = [schema.find_field(name).field_id for name in keys.column_names]
        arrow = pa.schema([f for f in to_arrow_schema(schema) if f.name in keys.column_names])
        path = f"{table.location()}/data/00000-0-{uuid.uuid4()}-00001.parquet"
        output = table.io.new_output(path)
        with output.create() as out:
            pq.write_table(keys.cast(arrow), out, store_schema=False)
        return DataFile.from_args(
            content=DataFileContent.EQUALITY_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(0),
            record_count=keys.num_rows,
            file_size_in_bytes=len(output),
            equality_ids=ids,
        )

    def _land(self, table: Table, files: Sequence[DataFile], deletes: Sequence[DataFile], ours: dict[str, str]) -> int:
        metadata, head = table.metadata, table.metadata.current_snapshot()
        new_id = metadata.new_snapshot_id()
        target = ManifestTarget(
            io=table.io,
            folder=f"{table.location()}/metadata",
            prefix="flink-",
            schema=table.schema(),
            snapshot_id=new_id,
        )
        manifests = load_manifests(table.io, head)
        for content, part in ((ManifestContent.DATA, files), (ManifestContent.DELETES, deletes)):
            manifests += (
                [write_manifest(target, metadata.spec(), content, added([(f, None) for f in part], new_id))]
                if part
                else []
            )
        parent, sequence = None if head is None else head.snapshot_id, metadata.next_sequence_number()
        metrics = UpdateMetrics()
        for file in (*files, *deletes):
            metrics.add_file(file)
        operation = Operation.OVERWRITE if deletes else Operation.APPEND
        body = {
            "snapshot-id": new_id,
            "parent-snapshot-id": parent,
            "sequence-number": sequence,
            "manifest-list": write_manifest_list(target, parent, sequence, manifests),
            "summary": update_snapshot_summaries(
                Summary(operation, **metrics.to_dict(), **ours), None if head is None else head.summary
            ),
            "schema-id": metadata.current_schema_id,
        }
        main = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": new_id}
        updates = (AddSnapshotUpdate(snapshot=Snapshot.model_validate(body)), SetSnapshotRefUpdate.model_validate(main))
        self._catalog.commit_table(table, (), updates)
        return new_id
