# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of data files in an executor: files of a PK table are merged by key, files of a log table in
offset order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import serialize_commit_message

from lakeward.lake.paimon.evolve import at_schema
from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.history import PaimonHistory
from lakeward.lake.paimon.meta.layout import data_prefix
from lakeward.lake.paimon.meta.manifests import Entry, Manifests
from lakeward.lake.paimon.scan.datafile import (
    HELD_ROWS,
    RewrittenFile,
    file_schema,
    merge_by_key,
    read_file,
    without_deletes,
)
from lakeward.lake.paimon.writer import VERSION
from lakeward.model import OFFSET, SnapshotId, fault_point, pack
from lakeward.spi import RewriteResult, RewriteTask, dropped_group

REWRITE_KIND = "paimon-rewrite"
_RUNS = 5
"""Paimon's default of `num-sorted-run.compaction-trigger`."""


def rewrite_group(connection: PaimonConnection, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """Returns None if `is_due` said yes first."""
    where, group = str(task.table.path), task.group
    if group.is_dropped:
        return dropped_group(group, pack(REWRITE_KIND, VERSION, {}, []))
    lake_table = at_schema(connection.load(task.table.path), task.table.schema)
    bucket = None if group.is_unplaced else group.bucket
    number = None if bucket is None else bucket.number
    lake_table = lake_table.copy({"data-file.prefix": data_prefix(lake_table, task.round_id, number)})
    planned = PaimonHistory.load(lake_table, where).get(SnapshotId(str(group.sequence)))
    with lake_errors(where, "rewrite files of"):
        places = {f.path: f.offsets for f in group.files}
        live = Manifests(lake_table).live(planned)
        # A file of the Flink job in a clean log table has no bucket and offsets: the plan has them.
        inputs = [replace(e, bucket=bucket, placed=places[e.path]) for e in live if e.path in places]
        others = [e for e in live if e.bucket == bucket and e.path not in places]
        raw = inputs[0].raw
        new = RewrittenFile(lake_table, tuple(raw.partition.values), raw.bucket)
        for rows in _rows(lake_table, inputs, is_whole=_is_oldest(inputs, others)):
            if is_due():
                new.abort()
                return None
            new.write(rows)
        file = new.close(_level(lake_table, inputs, others), _sequences(inputs))
    fault_point("rewrite.written", table=where, group=group.index)
    files = [] if file is None else [file]
    message = CommitMessage(partition=tuple(raw.partition.values), bucket=raw.bucket, new_files=files)
    return RewriteResult(
        group=group,
        payload=pack(REWRITE_KIND, VERSION, {}, [serialize_commit_message(message, lake_table.partition_keys_fields)]),
        rows=new.rows,
        bytes_read=sum(f.size_bytes for f in group.files),
        bytes_written=sum(int(f.file_size) for f in files),
    )


def _rows(lake_table: Any, inputs: Sequence[Entry], *, is_whole: bool) -> Iterator[pa.Table]:
    schema = file_schema(lake_table)
    inputs = sorted(inputs, key=_first) if inputs[0].is_clean else inputs
    files = [read_file(lake_table, e, schema, len(inputs)) for e in inputs]
    if lake_table.table_schema.primary_keys:
        keys = list(lake_table.trimmed_primary_keys)
        merged = merge_by_key(files, keys, is_by_offset=inputs[0].is_by_offset)
        yield from (without_deletes(rows) if is_whole else rows for rows in merged)
        return
    if inputs[0].is_clean:
        yield from (part for file in files for part in file)
        return
    rows = pa.concat_tables([part for file in files for part in file] or [schema.empty_table()])
    for batch in rows.sort_by([(OFFSET, "ascending")]).to_batches(HELD_ROWS):
        yield pa.Table.from_batches([batch])


def _first(entry: Entry) -> int:
    """Whether rows stay in the order of their files: those of a clean table do, as they have no offset column."""
    return -1 if entry.placed is None else entry.placed.start


def _sequences(inputs: Sequence[Entry]) -> tuple[int, int]:
    """Returns the offsets of a clean log table's file."""
    placed = [e.placed for e in inputs if e.is_clean and e.placed is not None]
    if placed:
        return min(r.start for r in placed), max(r.stop for r in placed) - 1
    return min(e.file.min_sequence_number for e in inputs), max(e.file.max_sequence_number for e in inputs)


def _is_oldest(inputs: Sequence[Entry], others: Sequence[Entry]) -> bool:
    """Whether no other file has an older row of any key. A delete then hides nothing and can be dropped."""
    ends, starts = [e.ages for e in inputs], [e.ages for e in others]
    if not others:
        return True
    if None in ends or None in starts:
        return False
    return max(o.stop for o in ends if o) <= min(o.start for o in starts if o)


def _level(lake_table: Any, inputs: Sequence[Entry], others: Sequence[Entry]) -> int:
    """Chooses the level: the top level has a bucket's oldest rows as files that do not overlap; other merged files stay
    in level 0, which may have any number of files."""
    if not lake_table.table_schema.primary_keys or not _is_oldest(inputs, others) or any(e.file.level for e in others):
        return 0
    options = lake_table.table_schema.options
    return int(options.get("num-levels", int(options.get("num-sorted-run.compaction-trigger", _RUNS)) + 1)) - 1
