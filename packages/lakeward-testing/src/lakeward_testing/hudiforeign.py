# SPDX-License-Identifier: Apache-2.0
"""What other engines may do to a Hudi table, as tests need it: commit, compact, insert, archive, restore."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.meta.avro import encode_metadata, write_stat
from lakeward.lake.hudi.meta.columns import META_COLUMNS, encode_columns, file_schema, to_avro_schema
from lakeward.lake.hudi.meta.properties import PRIMARY_KEY
from lakeward.lake.hudi.meta.slices import SeenFile, base_name, log_name, merge_order
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.meta.timeline import HudiInstant, new_instant
from lakeward.lake.hudi.scan.logblock import meta_columns, record_keys
from lakeward.lake.hudi.scan.rows import HudiRows
from lakeward.lake.hudi.writer import BaseFile, HudiWriteHandle, LogFile
from lakeward.model import BUCKET, OFFSET, SnapshotId


class HudiForeignEngine:
    """Commits carry no keys of ours."""

    def __init__(self, table: HudiTable) -> None:
        self._table = table
        self._properties = table.load_properties()
        self._is_pk = bool(self._properties[PRIMARY_KEY])
        self._name = self._properties["hoodie.table.name"]

    def touch(self) -> None:
        self._commit(new_instant(self._newest()), "deltacommit" if self._is_pk else "commit", "UPSERT", [])

    def compact(self) -> None:
        """Each file group into a base file, in descending offset order; of a log table into a new group."""
        ground, instant = HudiGround.load(self._table), new_instant(self._newest())
        head = ground.timeline.head
        groups: dict[tuple[str, str], list[SeenFile]] = {}
        for seen in ground.seen if head is not None else ():
            if head is not None and seen.is_in(head.completed):
                groups.setdefault(seen.file.group, []).append(seen)
        schema = self._schema(ground)
        rows, stats, gone = HudiRows(self._table.files, self._table.name, schema), [], dict[str, list[str]]()
        for (partition, file_id), members in groups.items():
            parts = list(rows.live(merge_order(members), schema.names))
            whole = pa.concat_tables(parts or [schema.empty_table()]).sort_by([(OFFSET, "descending")])
            new_id = file_id if self._is_pk else str(uuid.uuid4())
            if not self._is_pk:
                gone.setdefault(partition, []).append(file_id)
            name = base_name(new_id, 0, instant)
            output = BaseFile(self._table.files, self._path(partition, name), name, new_id, schema)
            output.write(whole)
            output.close()
            stats.append(
                write_stat(file_id=new_id, partition=partition, name=name, size=output.size, updates=output.rows)
            )
        if self._is_pk:
            self._commit(instant, "commit", "COMPACT", stats)
        else:
            self._commit(instant, "replacecommit", "CLUSTER", stats, gone)

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Into bucket 0 of a table without partitions; each says its offset."""
        ground, instant = HudiGround.load(self._table), new_instant(self._newest())
        schema = self._schema(ground)
        plain = pa.schema([f for f in schema if f.name not in META_COLUMNS])
        table = pa.Table.from_pylist([{"__timestamp": 0, BUCKET: 0, **r} for r in rows], schema=plain)
        names = self._properties["hoodie.table.recordkey.fields"].split(",")
        kinds = {c.name: c.type for c in ground.columns}
        keys = record_keys(table, names, [kinds.get(n) for n in names], is_named=len(names) > 1)
        ids = [f.file_id for f in ground.files_at(ground.timeline.head) if f.file_id.startswith("00000000-")]
        file_id = ids[0] if self._is_pk and ids else f"00000000-{uuid.uuid4()}"
        name = log_name(file_id, 0, instant, 1) if self._is_pk else base_name(file_id, 0, instant)
        meta = meta_columns(keys, instant=instant, partition="", file_name=name, number=0, start=0)
        whole = pa.Table.from_arrays([*meta, *table.columns], schema=schema)
        output = self._open(ground, instant, name, file_id, schema)
        if isinstance(output, LogFile):
            output.write(whole, [])
        else:
            output.write(whole)
        output.close()
        stat = write_stat(file_id=file_id, partition="", name=name, size=output.size, inserts=len(rows))
        self._commit(instant, "deltacommit" if self._is_pk else "commit", "UPSERT", [stat])

    def archive(self) -> None:
        """Cleans what only older snapshots need, and leaves the head alone in the timeline."""
        ground = HudiGround.load(self._table)
        head, instants = ground.timeline.head, ground.timeline.instants
        assert head is not None
        for seen in ground.seen:
            if not seen.is_in(head.completed):
                os.unlink(seen.file.path)
        going = [i for i in instants if i is not head and i.requested < head.requested]
        if going:
            self._table.archive(going)

    def restore(self, snapshot_id: SnapshotId) -> None:
        """Takes out every instant after this one, with its files."""
        timeline = self._table.load_timeline()
        kept = timeline.get(snapshot_id)
        gone = {i.requested for i in timeline.snapshots if i > kept}
        for file in self._table.list_data():
            if file.instant in gone:
                os.unlink(file.path)
        for instant in timeline.snapshots:
            if instant.requested in gone:
                self._take_out(instant)
        now = new_instant(timeline.instants[-1].completed)
        self._put(f"{now}_{new_instant(now)}.restore", b"")

    def _open(self, ground: HudiGround, instant: str, name: str, file_id: str, schema: pa.Schema) -> BaseFile | LogFile:
        if not self._is_pk:
            return BaseFile(self._table.files, self._path("", name), name, file_id, schema)
        avro = to_avro_schema(ground.columns, self._name, with_meta=True)
        columns = encode_columns(ground.columns)
        handle = HudiWriteHandle("", instant, columns, avro, (), (), True, 0, {})
        return LogFile(self._table.files, self._path("", name), name, file_id, handle, "")

    def _commit(
        self,
        instant: str,
        action: str,
        operation: str,
        stats: Sequence[Mapping[str, Any]],
        replaced: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        done = HudiInstant(new_instant(max(instant, self._newest())), instant, action)
        ground = HudiGround.load(self._table)
        extra = {"schema": to_avro_schema(ground.columns, self._name)}
        self._put(f"{instant}.{action}.requested", b"")
        self._put(done.name, encode_metadata(stats, operation=operation, extra=extra, replaced=replaced))

    def _take_out(self, instant: HudiInstant) -> None:
        for name in self._table.files.names(self._table.timeline_folder):
            if name.startswith(instant.requested):
                os.unlink(os.path.join(self._table.timeline_folder, name))

    def _schema(self, ground: HudiGround) -> pa.Schema:
        return file_schema(ground.columns, to_avro_schema(ground.columns, self._name, with_meta=True))

    def _newest(self) -> str:
        return max((i.completed for i in self._table.load_timeline().instants), default="")

    def _path(self, partition: str, name: str) -> str:
        return os.path.join(self._table.root, partition, name)

    def _put(self, name: str, data: bytes) -> None:
        assert self._table.files.put_exclusively(os.path.join(self._table.timeline_folder, name), data)
