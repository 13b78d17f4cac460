# SPDX-License-Identifier: Apache-2.0
"""Log offsets of a Fluss cluster's tables: starts, ends, and those of a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from lakeward.errors import LakewardError, PartitionNotFound, ServerUnavailable
from lakeward.hot.fluss.failures import to_error
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.tables import partition_ids
from lakeward.hot.fluss.wire.connection import FlussConnection, PendingCall
from lakeward.hot.fluss.wire.messages import CLIENT, LATEST, LIST_OFFSETS, Message
from lakeward.hot.fluss.wire.servers import FlussServers, LogBucket, path_message
from lakeward.model import Bucket, TableId, TableInfo, TablePath


class FlussOffsets:
    """Thread-safe. Partitions are those of when a table was loaded."""

    def __init__(self, servers: FlussServers) -> None:
        self.servers = servers

    def ends_together(self, tables: Sequence[TableInfo]) -> dict[TableId, dict[Bucket, int]]:
        """Log ends of several tables, as near to one moment as Fluss allows: leaders are looked up first, then every
        request is sent before the first answer is read. Tables that are not read or do not answer are left out."""
        groups = dict[TableId, list[tuple[FlussConnection, list[LogBucket]]]]()
        for table in tables:
            with suppress(LakewardError):
                check_supported(table)
                groups[table.table_id] = self._group(table, [*self._log_buckets(table)])
        pending = {
            table_id: [(group, _send(connection, _offsets_request(group, LATEST, None))) for connection, group in led]
            for table_id, led in groups.items()
        }
        ends = dict[TableId, dict[Bucket, int]]()
        for table in (t for t in tables if t.table_id in pending):
            with suppress(LakewardError):
                offsets = self._gather(table, pending[table.table_id], LATEST, None)
                ends[table.table_id] = {b: offsets[at] for at, b in self._log_buckets(table).items()}
        return ends

    def log_bucket(self, table: TableInfo, bucket: Bucket) -> LogBucket:
        """Raises `PartitionNotFound`."""
        if not table.descriptor.is_partitioned:
            return LogBucket(int(table.table_id), None, bucket.number)
        partition_id = partition_ids(table).get(bucket.partition)
        if partition_id is None:
            raise PartitionNotFound(table=str(table.path), partition=bucket.partition)
        return LogBucket(int(table.table_id), partition_id, bucket.number)

    def of_table(self, table: TableInfo, kind: int) -> dict[Bucket, int]:
        named = self._log_buckets(table)
        offsets = self.of_buckets(table, [*named], kind)
        return {named[b]: offset for b, offset in offsets.items()}

    def _log_buckets(self, table: TableInfo) -> dict[LogBucket, Bucket]:
        numbers = range(table.descriptor.bucket_count)
        if not table.descriptor.is_partitioned:
            return {LogBucket(int(table.table_id), None, n): Bucket("", n) for n in numbers}
        ids = partition_ids(table)
        return {LogBucket(int(table.table_id), i, n): Bucket(name, n) for name, i in ids.items() for n in numbers}

    def of_buckets(
        self, table: TableInfo, buckets: Sequence[LogBucket], kind: int, at_ms: int | None = None
    ) -> dict[LogBucket, int]:
        """Raises what the cluster raises, after it asked again for each bucket that failed."""
        pending = [
            (group, _send(connection, _offsets_request(group, kind, at_ms)))
            for connection, group in self._group(table, buckets)
        ]
        return self._gather(table, pending, kind, at_ms)

    def _group(self, table: TableInfo, buckets: Sequence[LogBucket]) -> list[tuple[FlussConnection, list[LogBucket]]]:
        """One request per server and partition."""
        led = self.servers.group_by_leader(_path(table.path), buckets)
        return [
            (connection, [b for b in of_server if b.partition_id == partition])
            for connection, of_server in led.items()
            for partition in dict.fromkeys(b.partition_id for b in of_server)
        ]

    def _gather(
        self,
        table: TableInfo,
        pending: Sequence[tuple[list[LogBucket], PendingCall | None]],
        kind: int,
        at_ms: int | None,
    ) -> dict[LogBucket, int]:
        path, offsets = _path(table.path), dict[LogBucket, int]()
        for group, call in pending:
            try:
                offsets |= (
                    self._parse_offsets(group, call.result())
                    if call is not None
                    else self._follow_all(path, group, kind, at_ms)
                )
            except LakewardError:
                offsets |= self._follow_all(path, group, kind, at_ms)
        return offsets

    def _follow_all(
        self, path: Message, group: Sequence[LogBucket], kind: int, at_ms: int | None
    ) -> dict[LogBucket, int]:
        """Asks each bucket's leader again: the cached one may be dead."""
        for bucket in group:
            self.servers.forget_leader(bucket)
        return {b: self._follow_offset(path, b, kind, at_ms) for b in group}

    def _follow_offset(self, path: Message, bucket: LogBucket, kind: int, at_ms: int | None) -> int:
        request = _offsets_request([bucket], kind, at_ms)
        answer = self.servers.follow(path, bucket, lambda leader: self._one(leader.call(LIST_OFFSETS, request)))
        return self._parse_offsets([bucket], answer)[bucket]

    def _one(self, answer: Message) -> Message:
        for bucket in answer.get("buckets", []):
            if bucket.get("error_code"):
                raise to_error(self.servers.bootstrap, "ListOffsets", bucket["error_code"], bucket.get("error_message"))
        return answer

    def _parse_offsets(self, buckets: Sequence[LogBucket], answer: Message) -> dict[LogBucket, int]:
        by_number = {b.get("bucket", 0): b.get("offset", 0) for b in self._one(answer).get("buckets", [])}
        return {b: by_number[b.number] for b in buckets}


def _send(connection: FlussConnection, request: Message) -> PendingCall | None:
    """None: the server is away."""
    try:
        return connection.send(LIST_OFFSETS, request)
    except ServerUnavailable:
        return None


def _offsets_request(buckets: Sequence[LogBucket], kind: int, at_ms: int | None) -> Message:
    first = buckets[0]
    return {
        "follower": CLIENT,
        "kind": kind,
        "table_id": first.table_id,
        "partition_id": first.partition_id,
        "buckets": [b.number for b in buckets],
        "timestamp": at_ms,
    }


def _path(path: TablePath) -> Message:
    return path_message(path.database, path.table)
