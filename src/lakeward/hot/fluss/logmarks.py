# SPDX-License-Identifier: Apache-2.0
"""Marks of the log in lake snapshots: the checksum of the last batch that a round took of each bucket.

A Fluss bucket whose only server was killed comes back without the writes of its last seconds, acknowledged or not, and
gives their offsets to new records. Offsets alone do not tell: the lake would keep the old rows and never see the new
ones. So each round compares the log's batch below the committed offset with the mark of the round that took it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lakeward.errors import LakewardError, LogRewritten
from lakeward.hot.fluss.tables import partition_ids
from lakeward.hot.fluss.wire.connection import PendingCall
from lakeward.hot.fluss.wire.messages import CLIENT, FETCH_LOG, Message
from lakeward.hot.fluss.wire.servers import FlussServers, LogBucket, path_message
from lakeward.hot.logbatch.header import MagicOne, read_header
from lakeward.model import Bucket, TableInfo
from lakeward.spi import LakeSnapshot

MARKS_KEY = "lakeward.log-marks"
ACCEPT_VARIABLE = "LAKEWARD_FLUSS_ACCEPT"
"""Tables, with commas, whose log and lake are taken as they are now, whatever Fluss knows of the lake: a way out for
people, for one run of the job."""

MAX_BUCKETS = 64
"""Buckets that are looked at in one go: each costs a column of one batch, and some 30 bytes of the table's metadata."""

_ONE_BATCH = 1
_HEADER = 56
"""Bytes, of the largest magic."""

_NEWEST = 20
"""Our snapshots that are searched for marks: a bucket that changed in none of them is not checked."""

Marks = dict[Bucket, tuple[int, int]]
"""Bucket -> (offset, checksum of the batch before it)."""


@dataclass(frozen=True)
class LastBatch:
    """The batch before an offset: its checksum, and when Fluss took it."""

    offset: int
    crc: int
    at_ms: int


BucketName = Callable[[Bucket], LogBucket]


def marks_of(batches: Mapping[Bucket, LastBatch]) -> Marks:
    return {b: (last.offset, last.crc) for b, last in batches.items()}


def read_last(
    servers: FlussServers, table: TableInfo, offsets: Mapping[Bucket, int], name: BucketName
) -> dict[Bucket, LastBatch]:
    """The batches before these offsets; without those that lie in remote storage, where nothing is lost.

    A request for each bucket, all on their way at once: a server gives a batch above the limit only to the first bucket
    of a request. Best effort: without a mark a round is as safe as the log is."""
    sent: list[tuple[Bucket, int, PendingCall]] = []
    for bucket, offset in sorted(offsets.items())[:MAX_BUCKETS]:
        with suppress(LakewardError):
            if offset > 0:
                sent.append((bucket, offset, _ask(servers, table, name(bucket), offset)))
    last_batches: dict[Bucket, LastBatch] = {}
    for bucket, offset, call in sent:
        with suppress(LakewardError):
            last = _last(call.result(), offset, servers.magic_one)
            last_batches |= {} if last is None else {bucket: last}
    return last_batches


def _ask(servers: FlussServers, table: TableInfo, where: LogBucket, offset: int) -> PendingCall:
    leader = servers.leader(path_message(table.path.database, table.path.table), where)
    return leader.send(FETCH_LOG, _request(table, where, offset))


def _last(answer: Message, offset: int, magic_one: MagicOne) -> LastBatch | None:
    for bucket in (b for t in answer.get("tables", []) for b in t.get("buckets", [])):
        records = bucket.get("records")
        if bucket.get("error_code") or records is None or len(records) < _HEADER:
            return None
        header = read_header(records, magic_one=magic_one)
        if header.base_offset < offset <= header.next_offset:
            return LastBatch(offset, header.crc, header.timestamp_ms)
    return None


def _request(table: TableInfo, where: LogBucket, offset: int) -> Message:
    """The first column alone where the server can cut: it leaves the checksum as it was."""
    bucket = {"partition_id": where.partition_id, "bucket": where.number, "offset": offset - 1, "max_bytes": _ONE_BATCH}
    is_cut = table.schema.schema_id == 1
    entry: Message = {
        "table_id": where.table_id,
        "is_projected": int(is_cut),
        "columns": [0] if is_cut else None,
        "buckets": [bucket],
    }
    return {"follower": CLIENT, "max_bytes": _ONE_BATCH, "tables": [entry], "max_wait_ms": 0, "min_bytes": 0}


def to_text(table: TableInfo, marks: Mapping[Bucket, tuple[int, int]]) -> str:
    """By Fluss's partition id: a partition that is dropped and created again under its name is another one."""
    ids = partition_ids(table)
    return json.dumps(
        [[ids.get(b.partition), b.number, offset, crc] for b, (offset, crc) in sorted(marks.items())],
        separators=(",", ":"),
    )


def known_marks(table: TableInfo, snapshots: Sequence[LakeSnapshot]) -> Marks:
    """The newest mark of each bucket that the table has now. `snapshots`: oldest first. Pure."""
    names: dict[int | None, str] = {None: "", **{i: name for name, i in partition_ids(table).items()}}
    marks: Marks = {}
    ours = [s for s in snapshots if s.round_id is not None]
    for snapshot in reversed(ours[-_NEWEST:]):
        for partition, number, offset, crc in json.loads(snapshot.summary.get(MARKS_KEY, "[]")):
            if partition in names:
                marks.setdefault(Bucket(names[partition], number), (offset, crc))
    return marks


def check_marks(
    table: TableInfo, known: Mapping[Bucket, tuple[int, int]], now: Mapping[Bucket, tuple[int, int]]
) -> None:
    """Raises `LogRewritten`. A bucket of which the log says nothing now is not judged."""
    for bucket, (offset, crc) in known.items():
        if bucket in now and now[bucket] != (offset, crc):
            advice = f"to go on with the log as it is, start the job once with {ACCEPT_VARIABLE}={table.path}"
            raise LogRewritten(table=str(table.path), bucket=str(bucket), offset=offset, advice=advice)
