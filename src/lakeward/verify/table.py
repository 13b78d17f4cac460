# SPDX-License-Identifier: Apache-2.0
"""Verifies one table: ledger, lake and hot store told against each other, under a read lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lakeward.errors import LakeBehind, LakeError, LakeRolledBack
from lakeward.model.bucket import Bucket
from lakeward.model.clock import Clock, SystemClock
from lakeward.model.ids import SnapshotId
from lakeward.model.ledger import LedgerEntry
from lakeward.model.offsets import OffsetMap
from lakeward.model.table import TablePath
from lakeward.read.arrow import OpenRead, ReadRequest, open_read
from lakeward.read.plan import ReadMode
from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake import LakeReader, LakeStorage
from lakeward.spi.registry import load_lake
from lakeward.verify.bucket import BucketTask, check_bucket
from lakeward.verify.certificate import BucketReport, Certificate, Finding, FindingKind
from lakeward.verify.ledger import (
    by_bucket,
    check_against_lake,
    check_contiguous,
    check_snapshots,
    expected_ranges,
    lake_ahead,
    newest_generation,
)

Grouped = Mapping[Bucket, Sequence[LedgerEntry]]
BucketRunner = Callable[[Sequence[BucketTask]], Iterable[BucketReport]]
"""Runs bucket checks: one after the other here, as Spark tasks for big tables."""


def verify_table(
    plugin: HotPlugin,
    path: TablePath,
    *,
    deep: bool = False,
    run: BucketRunner | None = None,
    clock: Clock | None = None,
) -> Certificate:
    """The certificate. Raises only what keeps it from being made (no such table, no server)."""
    clock = clock or SystemClock()
    request = ReadRequest(path=path, mode=ReadMode.LAKE)
    opened = open_read(plugin, request)
    with opened.lease:
        if opened.lake is None:
            return _empty(opened, deep, clock, "the lake is not enabled on this table")
        return _verify(plugin, opened, opened.lake, deep, run, clock)


def _verify(plugin: HotPlugin, opened: OpenRead, lake: LakeReader, deep: bool, run: BucketRunner | None, clock: Clock) -> Certificate:
    entries = newest_generation(plugin.coordinator().ledger(opened.table.path))
    snapshot, findings = _head(lake)
    snapshot = opened.union.snapshot_id if snapshot is None else snapshot
    grouped = by_bucket(entries)
    held = opened.union.lake_offsets
    if snapshot is not None:
        loaded = lake.load_snapshot(snapshot)
        held = loaded.offsets or OffsetMap() if loaded is not None else held
    findings += [f for bucket, ranges in grouped.items() for f in check_contiguous(bucket, ranges)]
    findings += check_against_lake(grouped, held)
    findings += check_snapshots(grouped, lake.snapshots())
    tasks = _tasks(plugin, opened, held, grouped, deep, snapshot)
    reports = tuple((run or _one_by_one(plugin, lake))(tasks))
    orphans = _orphans(_storage(opened), opened)
    ahead = lake_ahead(grouped, held)
    return Certificate(
        table=str(opened.table.path),
        table_id=opened.table.table_id,
        snapshot_id=snapshot,
        deep=deep,
        buckets=reports,
        findings=tuple(findings),
        beyond=tuple(b for r in reports for b in r.beyond),
        orphan_files=orphans[0],
        orphan_bytes=orphans[1],
        checked_at_ms=clock.now_ms(),
        notes=tuple(f"bucket {b}: the lake is ahead of the ledger by {r}; the next round adopts it" for b, r in ahead.items()),
    )


def _head(lake: LakeReader) -> tuple[SnapshotId | None, list[Finding]]:
    """Main's head as a round would see it; a rolled back or tampered lake is a finding, not an exception."""
    try:
        return lake.load_base().head, []
    except LakeRolledBack as error:
        return SnapshotId(error.head), [Finding(kind=FindingKind.ROLLED_BACK, words=str(error))]
    except (LakeBehind, LakeError) as error:
        return None, [Finding(kind=FindingKind.UNREADABLE, words=str(error))]


def _tasks(
    plugin: HotPlugin, opened: OpenRead, held: OffsetMap, grouped: Grouped, deep: bool, snapshot: SnapshotId | None
) -> list[BucketTask]:
    if snapshot is None:
        return []
    bounds = plugin.store().freeze(opened.table)
    return [
        BucketTask(
            table=opened.table,
            bucket=bucket,
            snapshot_id=snapshot,
            committed=committed,
            expected=tuple(expected_ranges(grouped.get(bucket, ()), committed)),
            bounds=bounds.get(bucket),
            deep=deep,
        )
        for bucket, committed in held.items()
    ]


def _one_by_one(plugin: HotPlugin, lake: LakeReader) -> BucketRunner:
    store = plugin.store()
    return lambda tasks: [check_bucket(task, store, lake) for task in tasks]


def _storage(opened: OpenRead) -> LakeStorage:
    assert opened.plan.lake_format is not None
    return load_lake(opened.plan.lake_format, opened.plan.lake_options)


def _orphans(storage: LakeStorage, opened: OpenRead) -> tuple[int, int]:
    """Files of ours that nothing references. A round under way has some too: they are its own, not yet committed."""
    upkeep = storage.open_maintenance(opened.table)
    listed = list(upkeep.list_files())
    used = upkeep.references()
    loose = [f for f in listed if f.path not in used]
    return len(loose), sum(f.size_bytes for f in loose)


def _empty(opened: OpenRead, deep: bool, clock: Clock, why: str) -> Certificate:
    return Certificate(
        table=str(opened.table.path),
        table_id=opened.table.table_id,
        snapshot_id=None,
        deep=deep,
        beyond=(why,),
        checked_at_ms=clock.now_ms(),
    )
