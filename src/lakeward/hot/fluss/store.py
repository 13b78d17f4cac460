# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster as `spi.hot.HotStore`: tables, partitions, log bounds, log ranges, KV snapshots."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakeward.errors import FlussTableNotFound, LakewardError
from lakeward.hot.fluss.failures import Code, fluss_code_of
from lakeward.hot.fluss.kv.kvsnapshot import KvSnapshots
from lakeward.hot.fluss.logfetch import LogFetch
from lakeward.hot.fluss.logmarks import LastBatch, Marks, marks_of, read_last
from lakeward.hot.fluss.offsets import FlussOffsets
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.tables import parse_columns, parse_partitions, parse_table, with_own_buckets
from lakeward.hot.fluss.wire.messages import (
    EARLIEST,
    LATEST,
    LIST_DATABASES,
    LIST_PARTITIONS,
    LIST_TABLES,
    TABLE_INFO,
    TABLE_SCHEMA,
    TIMESTAMP,
    Message,
)
from lakeward.hot.fluss.wire.servers import FlussServers, path_message
from lakeward.model import Bucket, Column, TableId, TableInfo, TablePath
from lakeward.spi import HotStore, KvSnapshot, LogBounds


class FlussStore(HotStore):
    """Connects on first use. Schemas never change once they have an id: they are kept."""

    has_prev_offset = False

    def __init__(self, servers: FlussServers) -> None:
        self.servers, self.offsets = servers, FlussOffsets(servers)
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
        starts, ends = self.offsets.of_table(table, EARLIEST), self.offsets.of_table(table, LATEST)
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
        return read_last(self.servers, table, offsets, lambda bucket: self.offsets.log_bucket(table, bucket))

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        offsets = self.offsets.of_buckets(table, [self.offsets.log_bucket(table, bucket)], TIMESTAMP, at_ms)
        return next(iter(offsets.values()))

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        fetch = LogFetch(
            servers=self.servers,
            table=table,
            path=_path(table.path),
            bucket=self.offsets.log_bucket(table, bucket),
            columns=columns,
            schemas=lambda schema_id: self.schema_columns(table, schema_id),
        )
        return fetch.batches(start, stop)

    # ---- KV snapshots ----------------------------------------------------------------------------------------------
    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        return self.snapshots.take(table, bucket, self.offsets.log_bucket(table, bucket), holder)

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.snapshots.read(table, snapshot, self.offsets.log_bucket(table, snapshot.bucket), columns)

    def renew_snapshots(self) -> None:
        """Leases that this process holds, as far as they need it."""
        self.snapshots.renew()

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.snapshots.release(holder)

    def close(self) -> None:
        self.servers.close()


def _path(path: TablePath) -> Message:
    return path_message(path.database, path.table)
