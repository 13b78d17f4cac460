# SPDX-License-Identifier: Apache-2.0
"""Marks of the log: written with a round, compared by later ones; a log that is another one now is noticed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakeward.errors import LogRewritten
from lakeward.hot.fluss.logmarks import MARKS_KEY, check_marks, known_marks, to_text
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.messages import FETCH_LOG, METADATA, decode
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.hot.logbatch.header import pack_inner, pack_outer
from lakeward.model import FLUSS_PARTITIONS, Bucket, RoundId, SnapshotId, TableInfo
from lakeward.spi import LakeSnapshot
from tests.unit.hot.fluss.scripted_server import Call, scripted
from tests.unit.hot.fluss.test_moves import TABLE

B0, B1, DAY = Bucket("", 0), Bucket("", 1), Bucket("2024-01-01", 0)


def partitioned(partition_id: int) -> TableInfo:
    properties = {FLUSS_PARTITIONS: json.dumps({str(partition_id): DAY.partition})}
    return TABLE.with_descriptor(replace(TABLE.descriptor, properties=properties))


def snapshot(name: str, marks: dict[Bucket, tuple[int, int]] | None, table: TableInfo = TABLE) -> LakeSnapshot:
    """Without marks: the Flink job's."""
    return LakeSnapshot(
        snapshot_id=SnapshotId(name),
        parent_id=None,
        committed_at_ms=0,
        operation="append",
        round_id=None if marks is None else RoundId(name),
        offsets=None,
        summary={} if marks is None else {MARKS_KEY: to_text(table, marks)},
    )


def test_the_newest_mark_of_each_bucket_counts() -> None:
    history = [snapshot("1", {B0: (5, 11), B1: (2, 21)}), snapshot("2", None), snapshot("3", {B0: (9, 12)})]
    assert known_marks(TABLE, history) == {B0: (9, 12), B1: (2, 21)}
    assert known_marks(TABLE, [snapshot("1", None)]) == {}


def test_a_partition_made_anew_under_its_old_name_has_no_marks() -> None:
    history = [snapshot("1", {DAY: (3, 33)}, partitioned(7))]
    assert known_marks(partitioned(7), history) == {DAY: (3, 33)}
    assert known_marks(partitioned(8), history) == {}


def test_a_log_with_other_records_is_noticed_and_one_that_says_nothing_is_not_judged() -> None:
    known = {B0: (9, 12), B1: (2, 21)}
    check_marks(TABLE, known, known)
    check_marks(TABLE, known, {B0: (9, 12)})
    with pytest.raises(LogRewritten, match=r"LAKEWARD_FLUSS_ACCEPT=shop\.orders") as found:
        check_marks(TABLE, known, {B0: (9, 12), B1: (2, 99)})
    assert (found.value.bucket, found.value.offset) == (str(B1), 2)


def batch(base: int, crc: int) -> bytes:
    inner = pack_inner(schema_id=1, append_only=True, record_count=5, writer_id=-1, sequence=-1) + b"rows and rows"
    return pack_outer(base_offset=base, timestamp_ms=0, crc=crc, payload_size=len(inner)) + inner


def test_every_bucket_of_a_server_gets_its_mark() -> None:
    """As Fluss does it: a batch above the limit is given to the first bucket of a request only. Bucket 2 has
    no leader.
    """

    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            nodes = [{"id": 1, "host": "127.0.0.1", "port": server.port}]
            buckets = [{"bucket": n, "leader": 1 if n != 2 else -1} for n in range(4)]
            path = {"database": "shop", "table": "orders"}
            call.done(METADATA, {"tablets": nodes, "tables": [{"path": path, "table_id": 7, "buckets": buckets}]})
        elif call.key == FETCH_LOG.key:
            (asked,) = decode(FETCH_LOG.request, call.body)["tables"]
            first, *rest = (b.get("bucket", 0) for b in asked["buckets"])
            found = [{"bucket": first, "records": batch(5, 100 + first)}, *({"bucket": n} for n in rest)]
            call.done(FETCH_LOG, {"tables": [{"table_id": 7, "buckets": found}]})

    with scripted(answer) as server:
        store = FlussStore(FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0))
        found = store.marks_now(TABLE, {Bucket("", n): 10 for n in range(4)})
        store.close()
    assert found == {Bucket("", n): (10, 100 + n) for n in (0, 1, 3)}
