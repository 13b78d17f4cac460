# SPDX-License-Identifier: Apache-2.0
"""KV snapshots of a Fluss cluster: found, leased, copied from remote storage, opened with
RocksDB and decoded in bulk.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.errors import IncompatibleVersion, InvalidTable, LakewardError, SchemaChanged, SnapshotGone
from lakeward.hot.fluss.failures import Code, fluss_code_of
from lakeward.hot.fluss.kv.kvrows import COMPACTED, INDEXED, decode_rows, schema_ids, without_tags
from lakeward.hot.fluss.kv.rowbatch import BatchShaper
from lakeward.hot.fluss.tables import KV_FORMAT_PROPERTY, value_layout
from lakeward.hot.fluss.wire.messages import ACQUIRE_KV_LEASE, DROP_KV_LEASE, KV_SNAPSHOT, LATEST_KV_SNAPSHOTS, Message
from lakeward.hot.fluss.wire.remotefiles import copy_file
from lakeward.hot.fluss.wire.servers import FlussServers, LogBucket, path_message
from lakeward.model import UNNAMED, Bucket, Column, TableInfo
from lakeward.spi import KvSnapshot

CHUNK_ROWS = 32_768
"""Rows decoded at a time: numpy's steps cost the same for one row and for a thousand, and this many stay in the cache.
"""

LEASE_MS = 3_600_000
"""Renewed by the job's heartbeat when half of it is over: a first round may take longer."""

_TRIES = 3

Schemas = Callable[[TableInfo, int], tuple[Column, ...]]


@dataclass
class _Lease:
    """The snapshot that one holder leases, and the time of its last renewal."""

    since: float
    snapshots: dict[LogBucket, int] = field(default_factory=dict)


class KvSnapshots:
    def __init__(self, servers: FlussServers, schemas: Schemas) -> None:
        self._servers, self._schemas = servers, schemas
        self._leases: dict[str, _Lease] = {}
        self.lease_ms = LEASE_MS
        self._lock = threading.Lock()

    def take(self, table: TableInfo, bucket: Bucket, where: LogBucket, holder: str) -> KvSnapshot | None:
        """The newest one, leased. None: there is none yet, or its rows are in a format not known here; then the log
        tells all, or fails.
        """
        if _form(table) not in (COMPACTED, INDEXED):
            return None
        for _ in range(_TRIES):
            latest = self._latest(table, bucket)
            if latest is None:
                return None
            self._lease(where, latest["snapshot_id"], holder)
            try:  # a lease on a snapshot that is gone is granted all the same: look after it, not before
                files = self._files(table, where, latest["snapshot_id"])
            except SnapshotGone:
                continue
            return KvSnapshot(
                bucket=bucket, snapshot_id=str(latest["snapshot_id"]), log_offset=files["log_offset"], has_offsets=False
            )
        raise self._gone(table, where, "the newest one")

    def renew(self) -> None:
        """Leases of this process that are half over. Best effort: the next beat tries again."""
        now = time.monotonic()
        with self._lock:
            due = {holder: lease for holder, lease in self._leases.items() if now - lease.since >= self.lease_ms / 2000}
        for holder, lease in due.items():
            with suppress(LakewardError):
                self._acquire(holder, dict(lease.snapshots))
                lease.since = now
                if holder not in self._leases:  # given back meanwhile
                    self.release(holder)

    def release(self, holder: str) -> None:
        with self._lock:
            self._leases.pop(holder, None)
        try:
            self._servers.call_coordinator(DROP_KV_LEASE, {"lease_id": holder})
        except IncompatibleVersion:
            return

    def read(
        self, table: TableInfo, snapshot: KvSnapshot, where: LogBucket, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Raises `SnapshotGone`, `SchemaChanged`, `ServerUnavailable`."""
        shaper = BatchShaper(table.schema, columns)
        files = self._files(table, where, int(snapshot.snapshot_id))
        with _opened(files["files"]) as database:
            values = database.values()
            while chunk := list(itertools.islice(values, CHUNK_ROWS)):
                for rows in self._decode(table, without_tags(chunk, value_layout(table))):
                    yield shaper.snapshot_batch(rows)

    def _decode(self, table: TableInfo, values: list[bytes]) -> Iterator[pa.RecordBatch]:
        """One batch per schema in the chunk; almost always one."""
        ids = schema_ids(values)
        for schema_id in np.unique(ids).tolist():
            if schema_id > table.schema.schema_id:
                raise SchemaChanged(
                    table=str(table.path), offset=-1, batch_schema=schema_id, planned_schema=table.schema.schema_id
                )
            chosen = (
                values
                if (ids == schema_id).all()
                else [v for v, i in zip(values, ids.tolist(), strict=True) if i == schema_id]
            )
            yield decode_rows(chosen, self._schemas(table, schema_id), _form(table))

    # ---- calls -----------------------------------------------------------------------------------------------------
    def _latest(self, table: TableInfo, bucket: Bucket) -> Message | None:
        path = path_message(table.path.database, table.path.table)
        answer = self._servers.call_any(LATEST_KV_SNAPSHOTS, {"path": path, "partition": bucket.partition or None})
        for stored in answer.get("snapshots", []):
            if stored.get("bucket", 0) == bucket.number and "snapshot_id" in stored:
                snapshot: Message = stored
                return snapshot
        return None

    def _lease(self, where: LogBucket, snapshot_id: int, holder: str) -> None:
        """Without it the files go when the second-next snapshot is made."""
        self._acquire(holder, {where: snapshot_id})
        with self._lock:
            lease = self._leases.setdefault(holder, _Lease(time.monotonic()))
            lease.snapshots[where] = snapshot_id

    def _acquire(self, holder: str, snapshots: Mapping[LogBucket, int]) -> None:
        """Also renews: what the holder has besides stays its own. A server too old for leases gives none."""
        tables: dict[int, list[Message]] = {}
        for where, snapshot_id in snapshots.items():
            bucket = {"partition_id": where.partition_id, "bucket": where.number, "snapshot_id": snapshot_id}
            tables.setdefault(where.table_id, []).append(bucket)
        requested_tables = [{"table_id": table_id, "buckets": buckets} for table_id, buckets in tables.items()]
        try:
            self._servers.call_coordinator(
                ACQUIRE_KV_LEASE, {"lease_id": holder, "duration_ms": self.lease_ms, "tables": requested_tables}
            )
        except IncompatibleVersion:
            return

    def _files(self, table: TableInfo, where: LogBucket, snapshot_id: int) -> Message:
        request = {
            "table_id": where.table_id,
            "partition_id": where.partition_id,
            "bucket": where.number,
            "snapshot_id": snapshot_id,
        }
        try:
            return self._servers.call_coordinator(KV_SNAPSHOT, request)
        except LakewardError as error:
            if fluss_code_of(error) == Code.KV_SNAPSHOT_GONE:
                raise self._gone(table, where, str(snapshot_id)) from error
            raise

    def _gone(self, table: TableInfo, where: LogBucket, snapshot: str) -> SnapshotGone:
        return SnapshotGone(
            table=str(table.path),
            snapshot=f"KV {snapshot} of bucket {where.number}",
            advice="a newer one is taken next round",
        )


def _form(table: TableInfo) -> str:
    return table.descriptor.properties.get(KV_FORMAT_PROPERTY, COMPACTED).lower()


@contextmanager
def _opened(files: list[Message]) -> Iterator[Any]:
    """A copy of the files under their own names: RocksDB writes into the folder it opens, even to read."""
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError as error:
        reason = "reading KV snapshots needs RocksDB: pip install 'lakeward[fluss]'"
        raise InvalidTable(table=UNNAMED, field="KV snapshot", value="rocksdict", reason=reason) from error
    with tempfile.TemporaryDirectory(prefix="lakeward-fluss-kv-") as name:
        folder = Path(name)
        for file in files:
            copy_file(file["remote"], folder / Path(file["local"]).name)
        database = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            yield database
        finally:
            database.close()
