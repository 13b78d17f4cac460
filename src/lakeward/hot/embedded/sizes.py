# SPDX-License-Identifier: Apache-2.0
"""How much each table holds in both tiers: read from memory, for metrics."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.hot.embedded.hottable import HotTable
from lakeward.model import TableId, TablePath


@dataclass(frozen=True, kw_only=True)
class TableSizes:
    """`appended_records`: ever, by the logs' ends. `appended_bytes`: since this process opened the table."""

    path: TablePath
    table_id: TableId
    local_bytes: int
    local_segments: int
    remote_bytes: int
    remote_segments: int
    buckets: int
    stopped_buckets: int
    appended_records: int = 0
    appended_bytes: int = 0
    ignored_rows: int = 0
    """Rows with a value for a column that was dropped, since this process opened the table."""

    ttl_ms: int = 0
    """How long its log is kept, by the table or by the server; 0: for ever."""

    written_at_ms: int = 0
    """When its newest row came; 0: none is there."""


def measure(table: HotTable) -> TableSizes:
    buckets = table.opened()
    files = [b.log.files for b in buckets if b.failure is None]
    remote = [f.remote for f in files if f.remote is not None]
    return TableSizes(
        path=table.info.path,
        table_id=table.info.table_id,
        local_bytes=sum(f.local_bytes for f in files),
        local_segments=sum(len(f.view.closed) + 1 for f in files),
        remote_bytes=sum(r.size for r in remote),
        remote_segments=sum(len(r.segments) for r in remote),
        buckets=len(buckets),
        stopped_buckets=sum(1 for b in buckets if b.failure is not None or b.log.stopped is not None),
        appended_records=sum(b.log.end for b in buckets if b.failure is None),
        appended_bytes=sum(b.log.appended_bytes for b in buckets if b.failure is None),
        ignored_rows=table.ignored_rows,
        ttl_ms=table.options.ttl_ms,
        written_at_ms=max((b.log.bounds().end_at_ms for b in buckets if b.failure is None), default=0),
    )
