# SPDX-License-Identifier: Apache-2.0
"""What other engines may do to a Paimon table, as tests need it: commit, insert, compact, expire, roll back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pypaimon.deletionvectors.bitmap_deletion_vector import BitmapDeletionVector
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.write.file_store_commit import FileStoreCommit, SuccessResult
from pypaimon.write.table_delete import TableDeleteByRowId
from pypaimon.write.writer.append_only_data_writer import AppendOnlyDataWriter
from pypaimon.write.writer.key_value_data_writer import KeyValueDataWriter

from lakeward.lake.paimon.meta.connection import PaimonConnection
from lakeward.lake.paimon.meta.history import PaimonHistory, snapshot_path
from lakeward.lake.paimon.meta.manifests import ADD, DELETE, Entry, Manifests
from lakeward.model import OFFSET, SnapshotId, TablePath

_NATIVE = {"write.native.enabled": "true", "commit.native.enabled": "false", "snapshot.ignore-empty-commit": "false"}
_SEQUENCE, _KIND, _TOP_LEVEL = "_SEQUENCE_NUMBER", "_VALUE_KIND", 5


class PaimonForeignEngine:
    """Pypaimon's own commits: they carry no keys of ours and leave our tag alone."""

    def __init__(self, connection: PaimonConnection, path: TablePath) -> None:
        self._connection, self._path = connection, path

    def table(self) -> Any:
        return self._connection.load(self._path).copy(_NATIVE)

    def schema(self) -> pa.Schema:
        return PyarrowFieldParser.from_paimon_schema(self.table().table_schema.fields)

    def committer(self, table: Any) -> FileStoreCommit:
        return FileStoreCommit(table.new_snapshot_commit(), table, "them")

    def alter(self, *changes: Any) -> None:
        with self._connection.catalog(str(self._path), "alter") as catalog:
            catalog.alter_table(str(self._path), list(changes), False)

    def touch(self) -> None:
        """A commit that changes nothing but the head."""
        self._commit([], "APPEND")

    def insert(self, rows: pa.Table) -> None:
        """Into bucket 0."""
        self.insert_all([(0, rows)])

    def insert_all(self, parts: Sequence[tuple[int, pa.Table]]) -> None:
        """Parts by bucket, each with a writer of its own. Rows of a log table are counted as Java does it: on from the
        last of the bucket, or from 0 where the table has none."""
        table, entries = self.table(), list[Any]()
        live = Manifests(table).live(PaimonHistory.load(table, str(self._path)).head)
        is_counted, has_buckets = not table.table_schema.primary_keys, table.options.bucket() > 0
        for bucket, rows in parts:
            writer = table.new_stream_write_builder().new_write()
            for batch in rows.to_batches():
                writer._native_writer.write_arrow(batch, bucket if has_buckets else None)
            writer._written = True
            new = self.committer(table)._collect_manifest_entries(writer.prepare_commit(1))
            writer.close()
            there = [e.raw for e in live if e.raw.bucket == bucket] + [e for e in entries if e.bucket == bucket]
            start = max((e.file.max_sequence_number + 1 for e in there), default=0) if has_buckets else 0
            for entry in new if is_counted else ():
                entry.file.min_sequence_number, start = start, start + entry.file.row_count
                entry.file.max_sequence_number = start - 1
            entries += new
        self._commit(entries)

    def compact(self) -> None:
        """Every bucket becomes one file of merged rows."""
        table, groups = self.table(), dict[tuple[Any, ...], list[Entry]]()
        for entry in Manifests(table).live(PaimonHistory.load(table, str(self._path)).head):
            groups.setdefault((entry.bucket, entry.raw.bucket), []).append(entry)
        entries = [e for group in groups.values() for e in self._compacted(table, group)]
        self._commit(entries, "COMPACT")

    def expire(self) -> None:
        """Every snapshot but the head, with the files that neither it nor a tag has."""
        table = self.table()
        history, manifests = PaimonHistory.load(table, str(self._path)), Manifests(table)
        gone = [s for s in map(history.find, history.numbers[:-1]) if s is not None]
        for snapshot in gone:
            history.files.delete(snapshot_path(history.folder, snapshot.number))
        left = PaimonHistory.load(table, str(self._path))
        kept = manifests.reach(name for s in [*left.newest_first(), *left.tags()] for name in s.lists).all
        for path in manifests.reach(name for s in gone for name in s.lists).deletion_order(kept):
            history.files.delete(path)

    def delete_by_vector(self, positions: Mapping[str, Sequence[int]]) -> None:
        """Rows of data files, by the files' names, as an engine does in a table with `deletion-vectors.enabled`."""
        self.alter(SchemaChange.set_option("deletion-vectors.enabled", "true"))
        table = self.table()
        history = PaimonHistory.load(table, str(self._path))
        made = []
        for entry in Manifests(table).live(history.head):
            if places := positions.get(entry.file.file_name):
                vector = BitmapDeletionVector()
                for place in places:
                    vector.delete(place)
                writer, raw = TableDeleteByRowId(table), entry.raw
                named = {entry.file.file_name: vector}
                made.append(writer._write_deletion_vector_index(raw.partition, raw.bucket, named))
        name = IndexManifestFile(table).combine_changes(None, made, [])
        self.touch()
        path = snapshot_path(history.folder, history.numbers[-1] + 1)
        body = json.loads(history.files.read(path) or "")
        history.files.put(path, json.dumps({**body, "indexManifest": name}))

    def roll_back(self, snapshot_id: SnapshotId) -> None:
        self.table().rollback_to(int(snapshot_id))

    def _compacted(self, table: Any, group: list[Entry]) -> list[Any]:
        raw, is_pk = group[0].raw, bool(table.table_schema.primary_keys)
        rows = pa.concat_tables([_read(table, e.path) for e in group], promote_options="default")
        rows = rows.sort_by([(OFFSET, "descending")]) if OFFSET in rows.column_names else rows
        if is_pk:
            rows = _merged(rows, list(table.trimmed_primary_keys))
        kind = KeyValueDataWriter if is_pk else AppendOnlyDataWriter
        writer = kind(table, tuple(raw.partition.values), raw.bucket, 0, table.options)
        writer._write_data_to_file(rows)
        made = [dataclasses.replace(f, level=_TOP_LEVEL if is_pk else 0, file_source=1) for f in writer.committed_files]
        return [*(_entry(raw, ADD, f) for f in made), *(_entry(e.raw, DELETE, e.file) for e in group)]

    def _commit(self, entries: list[Any], kind: str = "APPEND") -> None:
        table = self.table()
        result = self.committer(table)._try_commit_once(
            retry_result=None,
            commit_kind=kind,
            commit_entries=entries,
            changelog_entries=[],
            commit_identifier=1,
            latest_snapshot=table.snapshot_manager().get_latest_snapshot(),
        )
        assert isinstance(result, SuccessResult), result


def _read(table: Any, path: str) -> pa.Table:
    with table.file_io.new_input_stream(path) as source:
        return pq.ParquetFile(source).read()


def _merged(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Of each key the row with the highest offset, then sequence number; by key, as files of a higher level are."""
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    order = [(name, "ascending") for name in (OFFSET, _SEQUENCE) if name in rows.column_names]
    for row in rows.sort_by(order).to_pylist():
        newest[tuple(row[k] for k in keys)] = row
    live = [row for row in newest.values() if row[_KIND] in (0, 2)]
    return pa.Table.from_pylist(live, schema=rows.schema).sort_by([(k, "ascending") for k in keys])


def _entry(raw: Any, kind: int, file: Any) -> Any:
    return ManifestEntry(
        kind=kind, partition=raw.partition, bucket=raw.bucket, total_buckets=raw.total_buckets, file=file
    )
