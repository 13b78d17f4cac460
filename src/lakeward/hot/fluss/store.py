# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster as `spi.hot.HotStore`: tables, partitions, log bounds, log ranges, KV snapshots."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakeward.errors import FlussTableNotFound, LakewardError, PartitionNotFound, ServerUnavailable
from lakeward.hot.fluss.failures import Code, fluss_code_of, to_error
from lakeward.hot.fluss.kv.kvsnapshot import KvSnapshots
from lakeward.hot.fluss.logfetch import LogFetch
from lakeward.hot.fluss.logmarks import LastBatch, Marks, marks_of, read_last
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.tables import parse_columns, parse_partitions, parse_table, partition_ids, with_own_buckets
from lakeward.hot.fluss.wire.connection import FlussConnection, PendingCall
from lakeward.hot.fluss.wire.messages import (
    CLIENT,
    EARLIEST,
    LATEST,
    LIST_DATABASES,
    LIST_OFFSETS,
    LIST_PARTITIONS,
    LIST_TABLES,
    TABLE_INFO,
    TABLE_SCHEMA,
    TIMESTAMP,
    Message,
)
from lakeward.hot.fluss.wire.servers import FlussServers, LogBucket, path_message
from lakeward.model import Bucket, Column, TableId, TableInfo, TablePath
from lakeward.spi import HotStore, KvSnapshot, LogBounds


class FlussStore(HotStore):
    """Connects on first use. Schemas never change once they have an id: they are kept."""

    has_prev_offset = False

    def __init__(self, servers: FlussServers) -> None:
        self.servers = servers
        self._schemas: dict[tuple[str, int], tuple[Column, ...]] = {}
        self._frozen: dict[TableId, dict[Bucket, LastBatch]] = {}
        self._lock = threading.Lock()
        self.snapshots = KvSnapshots(servers, self.schema_columns)

    # ---- tables ----------------------------------------------------------------------------------------------------
    def load_table(self, path: TablePath) -> TableInfo:
        """Includes the present partitions: Fluss's offsets are per partition id, and later calls name these ids."""
        try:
            answer = self.servers.call_any(TABLE_INFO, {"path": _path(path)})
        except LakewardError as error:
            raise self._not_found(error, path) from error
        keys = json.loads(bytes(answer["json"])).get("partition_key", [])
        if not keys:
            return parse_table(path, answer, None)
        partitions = self.servers.call_any(LIST_PARTITIONS, {"path": _path(path)})
        return with_own_buckets(parse_table(path, answer, parse_partitions(partitions, keys)), partitions)

    def _not_found(self, error: LakewardError, path: TablePath) -> LakewardError:
        is_gone = fluss_code_of(error) == Code.TABLE_NOT_FOUND
        return FlussTableNotFound(table=str(path), address=self.servers.bootstrap) if is_gone else error

    def list_tables(self) -> Sequence[TablePath]:
        paths = []
        for database in self.servers.call_any(LIST_DATABASES, {}).get("names", []):
            names = self.servers.call_any(LIST_TABLES, {"database": database}).get("names", [])
            paths += [TablePath(database, name) for name in names]
        return sorted(paths)

    def schema_columns(self, table: TableInfo, schema_id: int) -> tuple[Column, ...]:
        """The columns of one schema of the table, with the types that the log has."""
        key = (table.table_id, schema_id)
        with self._lock:
            cached_columns = self._schemas.get(key)
        if cached_columns is None:
            answer = self.servers.call_any(TABLE_SCHEMA, {"path": _path(table.path), "schema_id": schema_id})
            cached_columns = parse_columns(json.loads(bytes(answer["json"])))
            with self._lock:
                self._schemas[key] = cached_columns
        return cached_columns

    # ---- the log ---------------------------------------------------------------------------------------------------
    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        """Up to Fluss's high watermark. Partitions: those of when the table was loaded. The log's marks at these ends
        are kept: taken before anything is read, they tell whether a round read what was there then. Raises
        `InvalidTable` for a log that is not read."""
        bounds = self.bounds(table)
        last = self._last_now(table, {bucket: bound.end for bucket, bound in bounds.items()})
        with self._lock:
            self._frozen[table.table_id] = last
        return bounds

    def bounds(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        """Like `freeze`, for reads that are no rounds: no marks are taken, so that those of a round stay."""
        check_supported(table)
        starts, ends = self._offsets(table, EARLIEST), self._offsets(table, LATEST)
        return {b: LogBounds(start=min(starts[b], end), end=end) for b, end in sorted(ends.items())}

    def last_batches(self, table: TableInfo, offsets: Mapping[Bucket, int]) -> dict[Bucket, LastBatch]:
        """The last batches below these offsets: as of the last `freeze` if they are ends from then, else as of now."""
        with self._lock:
            frozen = {
                b: last for b, last in self._frozen.get(table.table_id, {}).items() if last.offset == offsets.get(b)
            }
        rest = {b: o for b, o in offsets.items() if b not in frozen}
        return {**frozen, **(self._last_now(table, rest) if rest else {})}

    def marks_now(self, table: TableInfo, offsets: Mapping[Bucket, int]) -> Marks:
        return marks_of(self._last_now(table, offsets))

    def _last_now(self, table: TableInfo, offsets: Mapping[Bucket, int]) -> dict[Bucket, LastBatch]:
        return read_last(self.servers, table, offsets, lambda bucket: self.log_bucket(table, bucket))

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        offsets = self._list_offsets(table, [self.log_bucket(table, bucket)], TIMESTAMP, at_ms)
        return next(iter(offsets.values()))

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        fetch = LogFetch(
            servers=self.servers,
            table=table,
            path=_path(table.path),
            bucket=self.log_bucket(table, bucket),
            columns=columns,
            schemas=lambda schema_id: self.schema_columns(table, schema_id),
        )
        return fetch.batches(start, stop)

    # ---- KV snapshots ----------------------------------------------------------------------------------------------
    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        return self.snapshots.take(table, bucket, self.log_bucket(table, bucket), holder)

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.snapshots.read(table, snapshot, self.log_bucket(table, snapshot.bucket), columns)

    def renew_snapshots(self) -> None:
        """Leases that this process holds, as far as they need it."""
        self.snapshots.renew()

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.snapshots.release(holder)

    def close(self) -> None:
        self.servers.close()

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def log_bucket(self, table: TableInfo, bucket: Bucket) -> LogBucket:
        """Raises `PartitionNotFound`."""
        if not table.descriptor.is_partitioned:
            return LogBucket(int(table.table_id), None, bucket.number)
        partition_id = partition_ids(table).get(bucket.partition)
        if partition_id is None:
            raise PartitionNotFound(table=str(table.path), partition=bucket.partition)
        return LogBucket(int(table.table_id), partition_id, bucket.number)

    def _offsets(self, table: TableInfo, kind: int) -> dict[Bucket, int]:
        numbers = range(table.descriptor.bucket_count)
        if not table.descriptor.is_partitioned:
            asked = {LogBucket(int(table.table_id), None, n): Bucket("", n) for n in numbers}
        else:
            asked = {
                LogBucket(int(table.table_id), i, n): Bucket(name, n)
                for name, i in partition_ids(table).items()
                for n in numbers
            }
        offsets = self._list_offsets(table, list(asked), kind)
        return {asked[b]: offset for b, offset in offsets.items()}

    def _list_offsets(
        self, table: TableInfo, buckets: Sequence[LogBucket], kind: int, at_ms: int | None = None
    ) -> dict[LogBucket, int]:
        """One request per server and partition, all on their way at once; what fails is asked
        again bucket by bucket.
        """
        path = _path(table.path)
        pending: list[tuple[list[LogBucket], PendingCall | None]] = []
        for connection, led in self.servers.group_by_leader(path, buckets).items():
            for partition in dict.fromkeys(b.partition_id for b in led):
                group = [b for b in led if b.partition_id == partition]
                pending.append((group, _send(connection, _offsets_request(group, kind, at_ms))))
        offsets: dict[LogBucket, int] = {}
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
