# SPDX-License-Identifier: Apache-2.0
"""Foreign rows of a PK table: rows that other engines wrote since our newest round, which no changelog has. The rows
from before are looked up by key and written back, one log file for each file group, before the files of the round
itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.core.foreign import ForeignFile, check_foreign, find_foreign_files
from lakeward.lake.hudi.ground import COMPLETED_KEY, HudiGround
from lakeward.lake.hudi.meta.columns import COMMIT_TIME, FILE_NAME, RECORD_KEY, decode_columns, file_schema
from lakeward.lake.hudi.meta.slices import GroupId, HudiFile, SeenFile, log_name, merge_order
from lakeward.lake.hudi.meta.timeline import HudiInstant
from lakeward.lake.hudi.scan.rows import HudiRows
from lakeward.lake.hudi.writer import HudiWriteHandle, LogFile, StagedFile
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OFFSET, Bucket, OffsetSet, SnapshotId, TableInfo
from lakeward.spi import Renewal

_REWRITES = ("COMPACT", "CLUSTER", "LOG_COMPACT")


@dataclass(frozen=True)
class Restored:
    """Rows that restore one file group: rows as they were, and keys to delete."""

    group: GroupId
    bucket: Bucket
    rows: pa.Table
    deleted: list[str]


def foreign_instants(ground: HudiGround) -> list[HudiInstant]:
    """Returns foreign snapshots that changed rows since our newest round."""
    metadata = ground.timeline.metadata
    return [i for i in ground.since_ours() if metadata(i).operation not in _REWRITES and _changed(ground, i)]


def foreign_files(ground: HudiGround) -> list[HudiFile]:
    theirs = {i.requested for i in foreign_instants(ground)}
    return [s.file for s in ground.seen if s.file.instant in theirs]


def find_restored(
    table: TableInfo, ground: HudiGround, renewal: Renewal | None, rows: HudiRows, *, is_resync: bool
) -> list[Restored]:
    """Returns rows to write again: those that the round compared, and those that foreign rows replaced. Raises
    `ForeignRowsFound` if the table's option refuses them, or if another engine has merged them with ours since."""
    if not table.is_pk:
        return []
    bucket_of = _buckets(table)
    compared: Mapping[Bucket, OffsetSet] = {} if renewal is None else renewal.offsets
    restored = _renewed(ground, compared, rows, bucket_of)
    theirs = foreign_instants(ground)
    late = set() if renewal is None else {i.requested for i in theirs if _is_after(ground, i, renewal.head)}
    added = (ForeignFile(f, f.path, bucket_of(f), 0, f.instant in late) for f in foreign_files(ground))
    files = [f.file for f in find_foreign_files(added, renewal)]
    if not theirs or not files:
        return restored
    check_foreign(
        table,
        (i.id for i in theirs),
        sum(_changed(ground, i) for i in theirs),
        files[0].path,
        is_resync=is_resync,
        is_ambiguous=any(
            ground.timeline.metadata(i).operation in _REWRITES for i in ground.since_ours() if i > theirs[0]
        ),
    )
    return [*restored, *_undone(ground, files, rows, bucket_of)]


def _is_after(ground: HudiGround, instant: HudiInstant, head: SnapshotId) -> bool:
    """Whether it completed after the snapshot that was compared."""
    compared = next((i for i in ground.timeline.snapshots if i.id == head), None)
    return compared is None or instant > compared


def _undone(
    ground: HudiGround, files: list[HudiFile], rows: HudiRows, bucket_of: Callable[[HudiFile], Bucket | None]
) -> list[Restored]:
    at = ground.newest_round()[COMPLETED_KEY]
    restored = []
    for group in dict.fromkeys(f.group for f in files):
        ours = [f for f in files if f.group == group]
        bucket = bucket_of(ours[0])
        if bucket is None:
            continue
        keys = _keys(ours, rows)
        before = [s for s in ground.seen if s.file.group == group and s.is_in(at)]
        rows_before = _rows_of(before, rows, keys)
        keys_before = set(rows_before.column(RECORD_KEY).to_pylist()) if rows_before.num_rows else set()
        restored.append(Restored(group, bucket, rows_before, [k for k in keys.to_pylist() if k not in keys_before]))
    return restored


def _renewed(
    ground: HudiGround,
    compared: Mapping[Bucket, OffsetSet],
    rows: HudiRows,
    bucket_of: Callable[[HudiFile], Bucket | None],
) -> list[Restored]:
    """Deletes rows of the head that the round's own files contain again."""
    head, groups = ground.timeline.head, dict[GroupId, list[SeenFile]]()
    for seen in ground.seen if compared and head is not None else ():
        if head is not None and seen.is_in(head.completed):
            groups.setdefault(seen.file.group, []).append(seen)
    renewed = []
    for group, members in groups.items():
        bucket = bucket_of(members[0].file)
        compared_offsets = None if bucket is None else compared.get(bucket)
        if bucket is None or not compared_offsets:
            continue
        keys = []
        for part in rows.live(merge_order(members), [OFFSET, RECORD_KEY]):
            mask = compared_offsets.mask(part.column(OFFSET).to_numpy())
            keys += part.column(RECORD_KEY).filter(pa.array(mask)).to_pylist()
        if keys:
            renewed.append(Restored(group, bucket, pa.table({}), keys))
    return renewed


def _rows_of(members: list[SeenFile], rows: HudiRows, keys: pa.Array) -> pa.Table:
    parts = [
        part.filter(pc.is_in(part.column(RECORD_KEY), value_set=keys))
        for part in rows.live(merge_order(members), rows.names)
    ]
    return pa.concat_tables(parts) if parts else pa.table({})


def _keys(files: list[HudiFile], rows: HudiRows) -> pa.Array:
    """Returns the keys of all rows and deletes in these files."""
    logs = rows.merge([f for f in files if f.is_log], [RECORD_KEY])
    parts = [] if logs is None else [logs.keys]
    for file in files:
        if not file.is_log:
            parts += [p.column(RECORD_KEY).combine_chunks() for p in rows.live([file], [RECORD_KEY])]
    return pa.concat_arrays(parts).unique() if parts else pa.array([], pa.string())


def _changed(ground: HudiGround, instant: HudiInstant) -> int:
    stats = ground.timeline.metadata(instant).stats
    return sum(int(s.get(n) or 0) for s in stats for n in ("numInserts", "numUpdateWrites", "numDeletes"))


def _buckets(table: TableInfo) -> Callable[[HudiFile], Bucket | None]:
    return lambda file: file.bucket(table.descriptor.partition_keys, is_pk=table.is_pk)


def write_restored(files: TableFiles, handle: HudiWriteHandle, restored: Sequence[Restored]) -> list[StagedFile]:
    schema = file_schema(decode_columns(handle.columns), handle.avro)
    staged = []
    for number, part in enumerate(restored):
        partition, file_id = part.group
        path = f"{handle.staging}/restored-{number}-{uuid.uuid4().hex}"
        output = LogFile(files, path, log_name(file_id, number, handle.instant, 1), file_id, handle, partition)
        output.write(_restamped(part.rows, schema, handle.instant, file_id), part.deleted)
        output.close()
        staged.append(output.staged_file(partition))
    return staged


def _restamped(rows: pa.Table, schema: pa.Schema, instant: str, file_id: str) -> pa.Table | None:
    """Converts rows to the form in which this commit writes them."""
    if not rows.num_rows:
        return None
    own = {COMMIT_TIME: instant, FILE_NAME: file_id}
    arrays = [
        pa.repeat(pa.scalar(own[f.name]), rows.num_rows) if f.name in own else rows.column(f.name) for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
