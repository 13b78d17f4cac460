# SPDX-License-Identifier: Apache-2.0
"""Verifies one table: ledger, lake and hot store told against each other, under a read lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeward.errors import LakeError, LakeRolledBack, SchemaChanged, SnapshotGone
from lakeward.model import (
    BUCKET,
    OFFSET,
    Bucket,
    Clock,
    Content,
    LedgerEntry,
    OffsetMap,
    SideName,
    SnapshotId,
    SystemClock,
    TableInfo,
    TablePath,
    first_side,
)
from lakeward.protocol.readplan import ReadPlan
from lakeward.read.arrow import OpenRead, ReadRequest, open_read
from lakeward.read.plan import ReadMode
from lakeward.read.tail import rows_of
from lakeward.spi import AdoptedRows, HotPlugin, LakeFile, LakeReader, LakeSnapshot, LakeStorage, load_lake
from lakeward.verify.bucket import check_bucket
from lakeward.verify.certificate import SHOWN, BucketReport, Certificate, Finding, FindingKind
from lakeward.verify.ledger import (
    by_bucket,
    check_against_lake,
    check_contiguous,
    check_snapshots,
    dropped_below,
    expected_ranges,
    lake_ahead,
    ledger_ends,
    newest_generation,
    removed_snapshots,
)
from lakeward.verify.task import BucketTask
from lakeward.verify.unordered import compare_unordered

Grouped = Mapping[Bucket, Sequence[LedgerEntry]]
BucketRunner = Callable[[Sequence[BucketTask]], Iterable[BucketReport]]
"""Runs bucket checks: one after the other here, as Spark tasks for big tables."""

StorageOpener = Callable[[ReadPlan], LakeStorage]

ATTEMPTS = 3
"""Another engine's expiry, or a new column, may come in the middle: then all of it is checked again, on what is there
now.
"""


@dataclass(frozen=True)
class Depth:
    """How deep: `values` are compared with the hot store, of a share `sample` of the rows that `seed` picks."""

    values: bool = False
    sample: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Checked:
    """How far a verification has come."""

    buckets: int
    of: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """Base of a certificate: a snapshot under a read lease, and the ledger as it was before the lease was taken."""

    plugin: HotPlugin
    opened: OpenRead
    storage: LakeStorage
    lake: LakeReader
    grouped: Grouped
    depth: Depth
    floors: Mapping[Bucket, int]

    @property
    def snapshot_id(self) -> SnapshotId | None:
        return self.opened.plan.snapshot_id

    @property
    def hot_table(self) -> TableInfo:
        """A changelog's rows come from the log of another table."""
        is_state = self.opened.plan.side.content is Content.STATE
        return self.opened.table if is_state else self.opened.hot.load_table(self.opened.request.path)

    @property
    def held(self) -> OffsetMap:
        return self.opened.plan.offsets


def verify_table(
    plugin: HotPlugin,
    path: TablePath,
    *,
    deep: bool = False,
    sample: float = 1.0,
    seed: int = 0,
    run: BucketRunner | None = None,
    clock: Clock | None = None,
    open_storage: StorageOpener | None = None,
    progress: Callable[[Checked], None] | None = None,
    side: SideName | None = None,
) -> Certificate:
    """The certificate. Raises only what keeps it from being made (no such table, no server, no lake).

    Takes no table lease and stops no round: it reads a snapshot and a log range that a read lease keeps. `progress`
    hears of each bucket that is done. `side`: the table's first if None."""
    depth, tell = Depth(deep, sample, seed), progress or (lambda _checked: None)
    chosen = side or first_side(plugin.store().load_table(path).descriptor.properties)
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(
                plugin, path, chosen, depth, run, clock or SystemClock(), open_storage or _open_storage, tell
            )
        except (SnapshotGone, SchemaChanged):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the loop returns or raises")


def _attempt(
    plugin: HotPlugin,
    path: TablePath,
    side: SideName | None,
    depth: Depth,
    run: BucketRunner | None,
    clock: Clock,
    open_storage: StorageOpener,
    tell: Callable[[Checked], None],
) -> Certificate:
    # Before the lake is read: it may only fall behind meanwhile.
    entries = newest_generation(plugin.coordinator().ledger(path, side))
    storages: list[LakeStorage] = []

    def open_lake(plan: ReadPlan) -> LakeReader | None:
        if plan.lake_format is None:
            return None
        storages.append(open_storage(plan))
        return storages[-1].open_reader(plan.table)

    opened = open_read(plugin, ReadRequest(path=path, mode=ReadMode.LAKE, side=side), open_lake)
    with opened.lease:
        if opened.lake is None:
            return _empty(opened, depth.values, clock)
        ground = _Ground(
            plugin=plugin,
            opened=opened,
            storage=storages[-1],
            lake=opened.lake,
            grouped=by_bucket(entries),
            depth=depth,
            floors=_load_floors(plugin, opened.plan.side, path),
        )
        return _certify(ground, run or _one_by_one(ground), clock, tell)


def _load_floors(plugin: HotPlugin, side: SideName, path: TablePath) -> Mapping[Bucket, int]:
    """After the lake is read: what a changelog lets go is in the ledger before that."""
    return dropped_below(plugin.coordinator().ledger(path, side)) if side.content is Content.CHANGELOG else {}


def _certify(ground: _Ground, run: BucketRunner, clock: Clock, tell: Callable[[Checked], None]) -> Certificate:
    retained = ground.lake.snapshots()
    findings = [*_check_head(ground.lake), *_check_ledger(ground, retained)]
    work = _plan_work(ground)
    reports = tuple(_told(run(work.tasks), len(work.tasks), tell))
    orphans = _orphans(ground)
    ground.opened.lease.check()
    table = ground.opened.table
    return Certificate(
        table=str(table.path),
        table_id=table.table_id,
        snapshot_id=ground.snapshot_id,
        deep=ground.depth.values,
        buckets=reports,
        findings=(*findings, *work.findings),
        beyond=(*(b for r in reports for b in r.beyond), *work.beyond),
        orphan_files=orphans[0],
        orphan_bytes=orphans[1],
        checked_at_ms=clock.now_ms(),
        notes=tuple(_notes(ground, retained)),
        side=ground.opened.request.side,
        only_counted=work.only_counted,
        by_value=work.by_value,
    )


def _check_head(lake: LakeReader) -> list[Finding]:
    """Main as a round would see it; a rolled back or tampered lake is a finding, not an exception."""
    try:
        lake.load_base()
        _ = lake.adopted
    except LakeRolledBack as error:
        return [Finding(kind=FindingKind.ROLLED_BACK, words=str(error))]
    except LakeError as error:
        return [Finding(kind=FindingKind.UNREADABLE, words=str(error))]
    return []


def _check_ledger(ground: _Ground, retained: Sequence[LakeSnapshot]) -> list[Finding]:
    findings = [f for bucket, ranges in ground.grouped.items() for f in check_contiguous(bucket, ranges)]
    return [*findings, *check_against_lake(ground.grouped, ground.held), *check_snapshots(ground.grouped, retained)]


def _told(reports: Iterable[BucketReport], count: int, tell: Callable[[Checked], None]) -> Iterator[BucketReport]:
    rows = 0
    for number, report in enumerate(reports, 1):
        rows += report.rows
        tell(Checked(number, count, rows))
        yield report


@dataclass(frozen=True)
class _Work:
    """The buckets to check, and what is known of rows that belong to none of them."""

    tasks: Sequence[BucketTask] = ()
    findings: Sequence[Finding] = ()
    beyond: Sequence[str] = ()
    only_counted: int = 0
    by_value: int = 0


def _plan_work(ground: _Ground) -> _Work:
    """A bucket is checked up to where the ledger or the lake says it was committed, whichever is higher; one that only
    the lake's files name, up to nothing. Beside them what rows of no bucket tell, and which rows were
    compared as a whole or only counted."""
    if ground.snapshot_id is None or ground.opened.pinned is None:
        return _Work()
    table, depth = ground.hot_table, ground.depth
    bounds = ground.opened.hot.freeze(table)
    try:
        files = ground.opened.pinned.files(ground.snapshot_id)
        # A PK table's are in the hot store as well, and compared as all others are.
        adopted = None if ground.opened.table.is_pk else ground.opened.pinned.adopted
    except LakeError:
        files, adopted = (), None  # each bucket's check will say it, or that of the head did
    committed = dict(ground.held.raised(ledger_ends(ground.grouped)))
    unknown = {f.bucket for f in files if f.bucket is not None} - committed.keys()
    files = [f for f in files if adopted is None or f.offsets is not None or f.sequence > adopted.sequence]
    mixed = [f for f in files if f.bucket is None]
    tasks = [
        BucketTask(
            table=table,
            bucket=bucket,
            snapshot_id=ground.snapshot_id,
            committed=stop,
            expected=tuple(expected_ranges(ground.grouped.get(bucket, ()), stop)),
            bounds=bounds.get(bucket),
            deep=depth.values,
            mixed=bool(mixed),
            sample=depth.sample,
            seed=depth.seed,
            side=ground.opened.plan.side,
            floor=ground.floors.get(bucket, 0),
        )
        for bucket, stop in (*committed.items(), *((b, 0) for b in sorted(unknown)))
    ]
    unplaced = [f for f in files if f.offsets is None]
    if unplaced and not ground.opened.table.is_pk and not ground.opened.pinned.has_offsets:
        return _count_all(ground, tasks, unplaced)
    if adopted is not None:
        return _Work(tasks, *_count_adopted(ground, adopted))
    return _Work(tasks, _homeless(ground, mixed, [t.bucket for t in tasks]) if mixed else ())


def _count_all(ground: _Ground, tasks: Sequence[BucketTask], unplaced: Sequence[LakeFile]) -> _Work:
    """A log table whose rows do not say their offsets, after another engine rewrote files of it: its rows are counted
    as a whole, and in depth compared by their values."""
    assert ground.snapshot_id is not None
    assert ground.opened.pinned is not None
    adopted = ground.opened.pinned.adopted
    expected = sum(len(r) for task in tasks for r in task.expected) + (0 if adopted is None else adopted.rows)
    try:
        rows = sum(b.num_rows for b in ground.opened.pinned.scan(ground.snapshot_id, columns=[OFFSET]))
    except LakeError as error:
        return _Work(findings=[Finding(kind=FindingKind.UNREADABLE, words=str(error))])
    if rows != expected:
        kind = FindingKind.MISSING if rows < expected else FindingKind.STRAY
        words = f"{rows} rows are in the lake where {expected} should be"
        files = tuple(f.path for f in unplaced)[:SHOWN]
        finding = Finding(kind=kind, words=words, count=abs(rows - expected), files=files)
        return _Work(findings=[finding], beyond=[_only_counted(rows, unplaced)], only_counted=rows)
    if not ground.depth.values:
        return _Work(beyond=[_only_counted(rows, unplaced)], only_counted=rows)
    return _compare_all(ground, tasks, rows, unplaced)


def _only_counted(rows: int, unplaced: Sequence[LakeFile]) -> str:
    why = f"another engine wrote {len(unplaced)} of its files, and rows of this lake table do not store their offsets"
    return f"{rows:,} rows, which were counted and not compared ({why})"


def _compare_all(ground: _Ground, tasks: Sequence[BucketTask], rows: int, unplaced: Sequence[LakeFile]) -> _Work:
    """Each row of the log must be in the lake with its values, wherever it lies there. The count is right already."""
    assert ground.snapshot_id is not None
    assert ground.opened.pinned is not None
    try:
        done = compare_unordered(tasks, ground.opened.hot, ground.opened.pinned, ground.snapshot_id, rows)
    except LakeError as error:
        return _Work(findings=[Finding(kind=FindingKind.UNREADABLE, words=str(error))])
    if rows and not done.compared:
        return _Work(beyond=[_only_counted(rows, unplaced)], only_counted=rows)
    beyond = [] if done.compared == rows else [f"values of {rows - done.compared:,} rows: the log does not hold them"]
    words = f"{done.missing} rows of the log are not in the lake with these values"
    findings = [Finding(kind=FindingKind.ALTERED, words=words, count=done.missing)] if done.missing else []
    return _Work(findings=findings, beyond=beyond, only_counted=rows - done.compared, by_value=done.compared)


def _count_adopted(ground: _Ground, adopted: AdoptedRows) -> tuple[list[Finding], list[str]]:
    """Rows from before a log table was ours: no log tells of them but how many there were."""
    assert ground.snapshot_id is not None
    assert ground.opened.pinned is not None
    try:
        scanned = ground.opened.pinned.scan_buckets(ground.snapshot_id, columns=[OFFSET], buckets=[None])
        rows = sum(batch.num_rows for _, batch in scanned)
    except LakeError as error:
        return [Finding(kind=FindingKind.UNREADABLE, words=str(error))], []
    if rows == adopted.rows == 0:
        return [], []
    if rows == adopted.rows:
        return [], [f"{rows:,} rows from before the table was adopted, which were counted and not compared"]
    kind = FindingKind.MISSING if rows < adopted.rows else FindingKind.STRAY
    words = f"{rows} rows are from before the table was adopted, and {adopted.rows} were there then"
    return [Finding(kind=kind, words=words, count=abs(rows - adopted.rows))], []


def _homeless(ground: _Ground, mixed: Sequence[LakeFile], buckets: Sequence[Bucket]) -> list[Finding]:
    """Rows of files that do not record their bucket, and whose own columns name no bucket of the table either."""
    assert ground.snapshot_id is not None
    assert ground.opened.pinned is not None
    keys, rows = ground.opened.table.descriptor.partitioning, 0
    columns = [*(k.column for k in keys), BUCKET]
    try:
        for _, batch in ground.opened.pinned.scan_buckets(ground.snapshot_id, columns=columns, buckets=[None]):
            rows += batch.num_rows - sum(int(rows_of(batch, b, keys).sum()) for b in buckets)
    except LakeError as error:
        return [Finding(kind=FindingKind.UNREADABLE, words=str(error))]
    files = tuple(f.path for f in mixed)[:SHOWN]
    words = f"{rows} rows belong to no bucket: another engine wrote them"
    return [Finding(kind=FindingKind.STRAY, words=words, count=rows, files=files)] if rows else []


def _notes(ground: _Ground, retained: Sequence[LakeSnapshot]) -> Iterable[str]:
    for bucket, ahead in lake_ahead(ground.grouped, ground.held).items():
        yield f"bucket {bucket}: the lake is ahead of the ledger by {ahead}; the next round adopts it"
    for bucket, floor in ground.floors.items():
        yield f"bucket {bucket}: changes below offset {floor} are over the changelog's retention"
    removed = removed_snapshots(ground.grouped, retained)
    if removed:
        names = ", ".join(f"{s} {r}" for s, r in removed[:SHOWN])
        yield (
            f"{len(removed)} snapshots of ours are no longer in the lake's history (expired, or removed by somebody): "
            f"{names}"
        )
    if ground.depth.values and ground.depth.sample < 1:
        yield (
            f"values were compared of a sample of {ground.depth.sample:.3%} of the rows, seed {ground.depth.seed}; "
            f"every row was counted"
        )


def _one_by_one(ground: _Ground) -> BucketRunner:
    lake = ground.opened.pinned or ground.lake
    return lambda tasks: (check_bucket(task, ground.opened.hot, lake) for task in tasks)


def _open_storage(plan: ReadPlan) -> LakeStorage:
    assert plan.lake_format is not None
    return load_lake(plan.lake_format, plan.lake_options)


def _orphans(ground: _Ground) -> tuple[int, int]:
    """Our files that no snapshot references, listed before references are read: a commit in between references its
    files. A running round also has such files: they are not committed yet."""
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
