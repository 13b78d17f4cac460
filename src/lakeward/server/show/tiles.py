# SPDX-License-Identifier: Apache-2.0
"""The tiles of the dashboard, purely: figure, rule, and what to do when one is red."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeward.model import TablePath, TableState
from lakeward.protocol.sources import SourceStatus
from lakeward.protocol.views import JobStatus, TableStatus

ROUND_SHARE = 0.5
"""Two rounds must fit into the freshness: a row that just misses one waits for the next."""

FILES_PER_TABLE = 5_000
"""Live files of one table above which planning a scan begins to cost more than reading."""

LATE_BEATS, SILENT_BEATS = 3, 10
"""Missed heartbeats after which a job is late, and after which it is given up."""

TREND_MS = 300_000
Samples = Sequence[tuple[int, int]]
MOST_SLOT_BYTES = 4 << 30
"""Log that a slot of Postgres may keep before its tile turns red."""

SICK = frozenset({TableState.QUARANTINED, TableState.FAILED})


@dataclass(frozen=True, kw_only=True)
class Tile:
    """`page` is where the dashboard leads when the tile is red. `late`: not red yet, and on its way."""

    key: str
    name: str
    figure: str
    ok: bool
    rule: str
    advice: str = ""
    page: str = ""
    late: bool = False
    about: str = ""
    """The table that the figure is of."""

    detail: str = ""
    """The figure in words, for that table; without one, beside the figure."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Input of the tiles. `overdue_bytes`: remote log that is older than its TTL and only waits for the lake; without
    `knows_log` nothing is known of the log."""

    tables: Sequence[TableStatus]
    jobs: Sequence[JobStatus]
    missing_jobs: Sequence[str] = ()
    queue: Samples = ()
    remote_bytes: Samples = ()
    files: Samples = ()
    debt: Samples = ()
    """Files that need not be there."""

    overdue_bytes: int = 0
    knows_log: bool = True
    lake_error: str | None = None
    bad_rows: Mapping[TablePath, int] = field(default_factory=dict)
    """Rows of a minute that did not fit, of tables whose sources were stopped for it."""

    still: Sequence[str] = ()
    """Threads of the background that do not work."""

    sources: Sequence[SourceStatus] = ()


def make_tiles(seen: Overview) -> tuple[Tile, ...]:
    tiles: tuple[Tile, ...] = (_rounds(seen), _queue(seen), _remote(seen), _files(seen), _jobs(seen))
    tiles = (*tiles, _bad_rows(seen.bad_rows)) if seen.bad_rows else tiles
    return (*tiles, _sources(seen.sources)) if seen.sources else tiles


def _sources(sources: Sequence[SourceStatus]) -> Tile:
    """The log that a slot retains comes first: it fills the origin's disk."""
    stopped = [s for s in sources if s.phase in ("stopped", "waiting")]
    worst = max(sources, key=lambda s: s.lag.slot_bytes or 0)
    slot_bytes, seconds = worst.lag.slot_bytes or 0, max(s.lag.seconds or 0.0 for s in sources)
    rule = f"every source runs, and no slot keeps more than {MOST_SLOT_BYTES >> 30} GiB of log"
    if stopped:
        name = stopped[0].source.name
        why = stopped[0].error or f"no ingest process reports; run `lakeward ingest {name}`"
        return Tile(
            key="sources",
            name="Sources that do not run",
            figure=f"{len(stopped)}",
            ok=False,
            rule=rule,
            advice=f"Source {name} is {stopped[0].phase}: {why}.",
            page="#/jobs",
        )
    if slot_bytes > MOST_SLOT_BYTES:
        advice = f"Postgres keeps log for source {worst.source.name}: let its ingest process run, or drop the source."
        figure, name = f"{slot_bytes / 2**30:.1f} GiB", "Slot lag"
        return Tile(key="sources", name=name, figure=figure, ok=False, rule=rule, advice=advice, page="#/jobs")
    detail = f"slot keeps {slot_bytes / 2**20:.1f} MiB" if slot_bytes else ""
    name, figure = "Source lag, worst source", f"{seconds:.1f} s"
    return Tile(key="sources", name=name, figure=figure, ok=True, rule=rule, detail=detail)


def _rounds(seen: Overview) -> Tile:
    """The figure is the one that is red; the table that it is of is named."""
    tiered = [t for t in seen.tables if t.state not in (TableState.DISABLED, TableState.PAUSED)]
    worst = max(tiered, key=_share, default=None)
    share = _share(worst) if worst else 0.0
    name, figure, advice, detail, about = "Longest round", f"{share:.0%}", "", "", worst if share else None
    sick = [t for t in tiered if t.state in SICK or t.failures_in_a_row]
    late = [t for t in tiered if t.lag_ms > t.freshness_ms]
    stopped, blocked = [t for t in seen.tables if t.stopped_buckets], [t for t in seen.tables if t.blocked]
    if seen.still:
        name, figure, about = "Threads that stand still", f"{len(seen.still)}", None
        advice = f"{', '.join(seen.still)} stands still: start the server again, and look into its log for the cause."
    elif stopped:
        count, about = sum(t.stopped_buckets for t in stopped), stopped[0]
        name, figure = "Buckets that take no writes", f"{count}"
        advice = f"{count} buckets take no writes, of {about.path} first: {about.reason or 'see its page'}."
    elif seen.lake_error:
        name, figure, about = "Lake", "no answer", None
        advice = f"The lake does not answer: {seen.lake_error}. Nothing is lost; rounds go on when it does."
    elif blocked:
        about = blocked[0]
        name, figure = "Tables that do not reach their lake", f"{len(blocked)}"
        advice = f"{about.path}: {about.blocked}."
    elif sick:
        about = max(sick, key=lambda t: (t.state is TableState.QUARANTINED, t.failures_in_a_row))
        name, figure = "Tables that fail", f"{len(sick)}"
        advice = f"{about.path} fails: {about.reason or 'see its rounds'}."
    elif late:
        about = max(late, key=_lag_share)
        name, figure = "Late tables", f"{len(late)} of {len(tiered)} late"
        detail = f"is {_seconds(about.lag_ms)} behind, {_seconds(about.freshness_ms)} allowed"
        advice = f"`lakeward explain {about.path}` and its page show where the time goes."
    elif worst and share > ROUND_SHARE:
        detail = f"needs {share:.0%} of its freshness for a round"
        advice = f"Rounds of {worst.path} are too long: more buckets, more cores, or a longer freshness."
    else:
        return _fresh(seen, tiered)
    return Tile(
        key="rounds",
        name=name,
        figure=figure,
        ok=not advice,
        rule=f"rounds at most {ROUND_SHARE} of it, no table late, failing or cut off from its lake, no bucket stopped",
        advice=advice,
        page=_page(about) if advice and about else "",
        about="" if about is None else str(about.path),
        detail=detail,
    )


def _fresh(seen: Overview, tiered: Sequence[TableStatus]) -> Tile:
    """Nothing is wrong. Tables that somebody paused, or that no job serves, are not called fresh."""
    paused = [t for t in seen.tables if t.state is TableState.PAUSED]
    waiting = [t for t in tiered if not t.served and t.waiting_rows]
    fresh = len(tiered) - len(waiting)
    figure = "every table is fresh" if not (paused or waiting) else f"{fresh} of {fresh + len(paused + waiting)} fresh"
    closest = max(tiered, key=_lag_share, default=None)
    advice = f"{paused[0].path} is paused: `lakeward resume {paused[0].path}`." if paused else ""
    return Tile(
        key="rounds",
        name="Freshness",
        figure=figure if tiered or paused else "no tables yet",
        ok=True,
        rule="no table is late, fails or is cut off from its lake" if tiered else "nothing has to be brought to a lake",
        advice=advice or (f"{waiting[0].path} waits: no live job serves its pool." if waiting else ""),
        late=bool(paused or waiting),
        about="" if closest is None else str(closest.path),
        detail="" if closest is None else f"is closest: {_seconds(closest.lag_ms)} of {_seconds(closest.freshness_ms)}",
    )


def _queue(seen: Overview) -> Tile:
    depth = seen.queue[-1][1] if seen.queue else 0
    slots, is_known = sum(j.slots or 1 for j in _heard(seen)), all(j.slots is not None for j in _heard(seen))
    trend = _trend(seen.queue)
    ok = depth <= max(1, slots) or trend < 0
    advice = ""
    if not ok and slots == 0:
        advice = "Tables are due and no job is heard of: see the tile of the jobs."
    elif not ok:
        advice = "More tables are due than slots serve: start another job (`lakeward tier`) or raise --slots."
    return Tile(
        key="queue",
        name="Queue depth",
        figure=f"{depth} {_arrow(trend)}",
        ok=ok,
        rule=f"not above the {slots} slots there are, or falling"
        if is_known
        else "not above the number of jobs, whose slots are not known, or falling",
        advice=advice,
        page="#/jobs",
    )


def _remote(seen: Overview) -> Tile:
    held = seen.remote_bytes[-1][1] if seen.remote_bytes else 0
    ok = seen.overdue_bytes == 0
    slowest = max(seen.tables, key=lambda t: t.lag_ms, default=None)
    advice = (
        ""
        if ok
        else f"{_bytes(seen.overdue_bytes)} of log is past its TTL and kept only because the lake does not have it "
        f"yet{'' if slowest is None else f': {slowest.path} waits for lake {slowest.side} the longest'}."
    )
    return Tile(
        key="remote-log",
        name="Remote log",
        figure=f"{_bytes(held)} {_arrow(_trend(seen.remote_bytes))}" if seen.knows_log else "Fluss's own",
        ok=ok,
        rule="nothing past its TTL still waits for the lake",
        advice=advice,
        page="#/",
    )


def _files(seen: Overview) -> Tile:
    count, debt = sum((t.lake_files or 0) + (t.lake_delete_files or 0) for t in seen.tables), _debt(seen)
    worst = max(seen.tables, key=lambda t: t.lake_files or 0, default=None)
    ok = worst is None or (worst.lake_files or 0) <= FILES_PER_TABLE
    advice = (
        ""
        if ok or worst is None
        else f"{worst.path} has {worst.lake_files:,} files: `lakeward maintain {worst.path}` says what compaction has "
        "to do there; else longer freshness, or fewer buckets."
    )
    return Tile(
        key="files",
        name="Lake files",
        figure=f"{count:,} {_arrow(_trend(seen.files))}{debt}",
        ok=ok,
        rule=f"at most {FILES_PER_TABLE:,} in a table",
        advice=advice,
        page=_page(worst) if worst and not ok else "",
    )


def _debt(seen: Overview) -> str:
    """Nothing where all is merged."""
    files, rows = (sum(getattr(t, what) for t in seen.tables) for what in ("debt_files", "debt_rows"))
    deleted = f" with {rows:,} deleted rows" if rows else ""
    return f", {files:,} to merge{deleted} {_arrow(_trend(seen.debt))}" if files else ""


def _jobs(seen: Overview) -> Tile:
    live = len(_heard(seen))
    expected_jobs = len({*(j.name for j in seen.jobs if j.expected), *seen.missing_jobs})
    lost = [j for j in seen.jobs if j.live and j.beats_missed >= SILENT_BEATS]
    late = [j for j in _heard(seen) if j.beats_missed >= LATE_BEATS]
    unserved = [t for t in seen.tables if not t.served and t.state is not TableState.DISABLED]
    silent = sorted({*seen.missing_jobs, *(j.name for j in seen.jobs if j.expected and not j.live)})
    advice = ""
    if silent:
        advice = f"Expected and not heard of: {', '.join(silent)}. Start it again under its name."
    elif lost:
        advice = f"{_silence(lost[0])}: it was killed or hangs. Its tables go to others when its lease ends."
    elif live == 0 and seen.tables:
        advice = "No job is live: nothing reaches the lake. Start one with `lakeward tier`."
    elif unserved:
        pool = unserved[0].pool
        advice = f"No live job serves pool {pool} of {unserved[0].path}: `lakeward tier --pool {shlex.quote(pool)}`."
    return Tile(
        key="jobs",
        name="Jobs live / expected",
        figure=f"{live} / {max(expected_jobs, 1 if seen.tables else 0)}",
        ok=not advice,
        rule="every expected job is live and every pool is served" if seen.tables else "no table waits for one yet",
        advice=advice or (f"{_silence(late[0])}." if late else ""),
        page="#/jobs",
        late=bool(late) and not advice,
    )


def _bad_rows(stopped: Mapping[TablePath, int]) -> Tile:
    worst = max(stopped, key=lambda path: stopped[path])
    advice = f"Rows for {worst} do not fit, and their source is refused: `lakeward quarantine list {worst}` says why."
    return Tile(
        key="quarantine",
        name="Sources stopped for bad rows",
        figure=f"{len(stopped)}",
        ok=False,
        rule="no more rows a minute than table.schema.quarantine.max-rows-per-minute do not fit",
        advice=advice,
        page=f"#/table/{worst}",
        about=str(worst),
    )


def _heard(seen: Overview) -> list[JobStatus]:
    return [j for j in seen.jobs if j.live and j.beats_missed < SILENT_BEATS]


def _silence(job: JobStatus) -> str:
    return f"Job {job.name} missed {job.beats_missed} heartbeats"


def _share(table: TableStatus | None) -> float:
    return 0.0 if table is None or not table.last_duration_ms else table.last_duration_ms / table.freshness_ms


def _lag_share(table: TableStatus) -> float:
    return table.lag_ms / max(1, table.freshness_ms)


def _page(table: TableStatus) -> str:
    return f"#/table/{table.path}"


def _trend(samples: Samples) -> int:
    """The change over the last five minutes."""
    if len(samples) < 2:
        return 0
    newest = samples[-1][0]
    recent = [value for at, value in samples if at >= newest - TREND_MS]
    return recent[-1] - recent[0]


def _arrow(change: int) -> str:
    return "↑" if change > 0 else "↓" if change < 0 else "→"


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.0f} s" if ms < 120_000 else f"{ms / 60_000:.0f} min"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
