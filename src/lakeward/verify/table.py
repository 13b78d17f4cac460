# SPDX-License-Identifier: Apache-2.0
"""Verifies one table: ledger, lake and hot store told against each other, under a read lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakeward.errors import LakeError, LakeRolledBack, SchemaChanged, SnapshotGone
from lakeward.model.bucket import Bucket
from lakeward.model.clock import Clock, SystemClock
from lakeward.model.ids import SnapshotId
from lakeward.model.ledger import LedgerEntry
from lakeward.model.offsets import OffsetMap
from lakeward.model.table import TablePath
from lakeward.protocol.readplan import ReadPlan
from lakeward.read.arrow import OpenRead, ReadRequest, open_read
from lakeward.read.plan import ReadMode
from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake import LakeReader, LakeSnapshot, LakeStorage
from lakeward.spi.registry import load_lake
from lakeward.verify.bucket import check_bucket
from lakeward.verify.certificate import SHOWN, BucketReport, Certificate, Finding, FindingKind
from lakeward.verify.ledger import (
    by_bucket,
    check_against_lake,
    check_contiguous,
    check_snapshots,
    expected_ranges,
    lake_ahead,
    ledger_ends,
    newest_generation,
    removed_snapshots,
)
from lakeward.verify.task import BucketTask

Grouped = Mapping[Bucket, Sequence[LedgerEntry]]
BucketRunner = Callable[[Sequence[BucketTask]], Iterable[BucketReport]]
"""Runs bucket checks: one after the other here, as Spark tasks for big tables."""

StorageOpener = Callable[[ReadPlan], LakeStorage]

ATTEMPTS = 3
"""Another engine's expiry, or a new column, may come in the middle: then all of it is checked again, on what is there
now.
"""


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """What a certificate stands on: a snapshot under a read lease and the ledger as it was before that was taken."""

    plugin: HotPlugin
    opened: OpenRead
    storage: LakeStorage
    lake: LakeReader
    grouped: Grouped
    deep: bool

    @property
    def snapshot_id(self) -> SnapshotId | None:
        return self.opened.plan.snapshot_id

    @property
    def held(self) -> OffsetMap:
        return self.opened.plan.offsets


def verify_table(
    plugin: HotPlugin,
    path: TablePath,
    *,
    deep: bool = False,
    run: BucketRunner | None = None,
    clock: Clock | None = None,
    open_storage: StorageOpener | None = None,
) -> Certificate:
    """The certificate. Raises only what keeps it from being made (no such table, no server, no lake).

    Takes no table lease and stops no round: it reads a snapshot and a log range that a read lease keeps."""
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(plugin, path, deep, run, clock or SystemClock(), open_storage or _open_storage)
        except (SnapshotGone, SchemaChanged):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the loop returns or raises")


def _attempt(
    plugin: HotPlugin, path: TablePath, deep: bool, run: BucketRunner | None, clock: Clock, open_storage: StorageOpener
) -> Certificate:
    entries = newest_generation(
        plugin.coordinator().ledger(path)
    )  # before the lake is read: it may only fall behind meanwhile
    storages: list[LakeStorage] = []

    def open_lake(plan: ReadPlan) -> LakeReader | None:
        if plan.lake_format is None:
            return None
        storages.append(open_storage(plan))
        return storages[-1].open_reader(plan.table)

    opened = open_read(plugin, ReadRequest(path=path, mode=ReadMode.LAKE), open_lake)
    with opened.lease:
        if opened.lake is None:
            return _empty(opened, deep, clock)
        ground = _Ground(
            plugin=plugin, opened=opened, storage=storages[-1], lake=opened.lake, grouped=by_bucket(entries), deep=deep
        )
        return _certify(ground, run or _one_by_one(ground), clock)


def _certify(ground: _Ground, run: BucketRunner, clock: Clock) -> Certificate:
    retained = ground.lake.snapshots()
    findings = [*_check_head(ground.lake), *_check_ledger(ground, retained)]
    reports = tuple(run(_tasks(ground)))
    orphans = _orphans(ground)
    ground.opened.lease.check()
    table = ground.opened.table
    return Certificate(
        table=str(table.path),
        table_id=table.table_id,
        snapshot_id=ground.snapshot_id,
        deep=ground.deep,
        buckets=reports,
        findings=tuple(findings),
        beyond=tuple(b for r in reports for b in r.beyond),
        orphan_files=orphans[0],
        orphan_bytes=orphans[1],
        checked_at_ms=clock.now_ms(),
        notes=tuple(_notes(ground, retained)),
    )


def _check_head(lake: LakeReader) -> list[Finding]:
    """Main as a round would see it; a rolled back or tampered lake is a finding, not an exception."""
    try:
        lake.load_base()
    except LakeRolledBack as error:
        return [Finding(kind=FindingKind.ROLLED_BACK, words=str(error))]
    except LakeError as error:
        return [Finding(kind=FindingKind.UNREADABLE, words=str(error))]
    return []


def _check_ledger(ground: _Ground, retained: Sequence[LakeSnapshot]) -> list[Finding]:
    found = [f for bucket, ranges in ground.grouped.items() for f in check_contiguous(bucket, ranges)]
    return [*found, *check_against_lake(ground.grouped, ground.held), *check_snapshots(ground.grouped, retained)]


def _tasks(ground: _Ground) -> list[BucketTask]:
    """A bucket is checked up to where the ledger or the lake says it was committed, whichever is higher."""
    if ground.snapshot_id is None:
        return []
    bounds = ground.opened.hot.freeze(ground.opened.table)
    return [
        BucketTask(
            table=ground.opened.table,
            bucket=bucket,
            snapshot_id=ground.snapshot_id,
            committed=committed,
            expected=tuple(expected_ranges(ground.grouped.get(bucket, ()), committed)),
            bounds=bounds.get(bucket),
            deep=ground.deep,
        )
        for bucket, committed in ground.held.raised(ledger_ends(ground.grouped)).items()
    ]


def _notes(ground: _Ground, retained: Sequence[LakeSnapshot]) -> Iterable[str]:
    for bucket, ahead in lake_ahead(ground.grouped, ground.held).items():
        yield f"bucket {bucket}: the lake is ahead of the ledger by {ahead}; the next round adopts it"
    gone = removed_snapshots(ground.grouped, retained)
    if gone:
        names = ", ".join(f"{s} {r}" for s, r in gone[:SHOWN])
        yield (
            f"{len(gone)} snapshots of ours are no longer in the lake's history (expired, or removed by somebody): "
            f"{names}"
        )


def _one_by_one(ground: _Ground) -> BucketRunner:
    return lambda tasks: [check_bucket(task, ground.opened.hot, ground.lake) for task in tasks]


def _open_storage(plan: ReadPlan) -> LakeStorage:
    assert plan.lake_format is not None
    return load_lake(plan.lake_format, plan.lake_options)


def _orphans(ground: _Ground) -> tuple[int, int]:
    """Files of ours that nothing references, listed before references are read: a commit in between takes its files
    out.

    A round under way has some too: they are its own, not yet committed."""
    upkeep = ground.storage.open_maintenance(ground.opened.table)
    try:
        listed = list(upkeep.list_files())
        used = upkeep.references()
    except LakeError:
        return 0, 0  # what is unreadable is a finding already
    loose = [f for f in listed if f.path not in used]
    return len(loose), sum(f.size_bytes for f in loose)


def _empty(opened: OpenRead, deep: bool, clock: Clock) -> Certificate:
    return Certificate(
        table=str(opened.table.path),
        table_id=opened.table.table_id,
        snapshot_id=None,
        deep=deep,
        beyond=("the lake is not enabled on this table",),
        checked_at_ms=clock.now_ms(),
    )
