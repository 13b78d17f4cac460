# SPDX-License-Identifier: Apache-2.0
"""Commands on an Apache Fluss cluster, in place of a server: what goes on is asked of the cluster and the lake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.output import counted, duration, moment, note, print_json, print_rows, size
from lakeward.errors import InvalidConfig, LakewardError
from lakeward.model import TablePath

if TYPE_CHECKING:
    from lakeward.hot.fluss.clusterview import ClusterView, TableView
    from lakeward.hot.fluss.plugin import FlussPlugin
    from lakeward.model import TableInfo
    from lakeward.protocol.heartbeat import HandedOut
    from lakeward.spi import LakeTotals

Fluss = Annotated[
    str | None, typer.Option("--fluss", help="Tables of this Fluss cluster (host:port) instead of a server's.")
]
FlussUser = Annotated[
    str | None, typer.Option("--fluss-user", help="Fluss user for SASL; its password is in LAKEWARD_FLUSS_PASSWORD.")
]


def check_no_server(server: str | None, lake: str | None = None) -> None:
    """Refuses options that have no meaning with --fluss. Raises `InvalidConfig`."""
    if server is not None:
        raise InvalidConfig(where="--server", reason="not together with --fluss: name the cluster or the server")
    if lake is not None:
        raise InvalidConfig(where="--lake", reason="not together with --fluss: a table of Fluss has the cluster's lake")


@contextmanager
def open_fluss(fluss: str, user: str | None) -> Iterator[FlussPlugin]:
    from lakeward.hot.fluss.plugin import FlussPlugin

    plugin = FlussPlugin({"bootstrap": fluss, **({} if user is None else {"user": user})})
    try:
        yield plugin
    finally:
        plugin.store().close()


@contextmanager
def _view(fluss: str, user: str | None) -> Iterator[ClusterView]:
    from lakeward.hot.fluss.clusterview import ClusterView

    with open_fluss(fluss, user) as plugin:
        yield ClusterView(plugin)


def show_status(fluss: str, user: str | None, *, as_json: bool) -> None:
    """Exit code 1 when a table is late, or cannot be read."""
    with _view(fluss, user) as view:
        tables = view.views()
    if as_json:
        print_json([asdict(t) for t in tables])
    else:
        print_tables(tables)
    if any(t.state in ("late", "unreadable") for t in tables):
        raise typer.Exit(1)


def print_tables(tables: Sequence[TableView]) -> None:
    """Reasons below them: one long cell would push all columns out of sight."""
    columns = ("table", "state", "freshness", "lag", "waiting", "last commit (UTC)", "job", "lake rows", "files")
    print_rows(columns, [_table_row(t) for t in tables], empty="no lake tables")
    for table in tables:
        if table.reason is not None:
            note(f"{table.path} is {table.state}: {table.reason}")


def _table_row(t: TableView) -> tuple[object, ...]:
    totals = (None, None) if t.totals is None else (_rows(t.totals), t.totals.data_files)
    commit = moment(t.last_commit_at_ms)
    return (t.path, t.state, duration(t.freshness_ms), duration(t.lag_ms), t.waiting, commit, t.job, *totals)


def _rows(totals: LakeTotals) -> object:
    return totals.rows if totals.is_exact else f"<= {totals.rows:,}"


def show_rounds(fluss: str, user: str | None, table: str | None, limit: int, *, as_json: bool) -> None:
    """Commits that the lake still has snapshots of; how long a round took is not in them."""
    with _view(fluss, user) as view:
        if table is None:
            commits = view.commits(view.lake_tables(), _skip)[:limit]
        else:
            commits = view.commits_of(view.lake_table(TablePath.parse(table)))[:limit]
    if as_json:
        print_json([asdict(c) for c in commits])
        return
    rows = [
        (moment(c.committed_at_ms), c.path, c.kind, c.rows, c.deletes, size(c.bytes_written), c.job) for c in commits
    ]
    print_rows(
        ("committed (UTC)", "table", "kind", "rows", "deletes", "written", "job"), rows, empty="no round is in the lake"
    )


def _skip(table: TableInfo, error: LakewardError) -> None:
    note(f"warning: {table.path} is left out: {error}")


def show_next_round(fluss: str, user: str | None, table: str, *, as_json: bool) -> None:
    from lakeward.model import describe_plan
    from lakeward.tiering.round.explain import explain

    with open_fluss(fluss, user) as plugin:
        found = explain(plugin, TablePath.parse(table))
    if as_json:
        print_json({"next_round": describe_plan(found.plan)})
    else:
        print("\n".join(found.lines()))


def tier_cluster_now(fluss: str, user: str | None, table: str, limit_s: float, *, as_json: bool) -> None:
    from lakeward.config import resolve
    from lakeward.hot.fluss.tiernow import tier_now
    from lakeward.protocol.codec import encode
    from lakeward.tiering.work.options import TieringOptions

    options = TieringOptions.from_config(resolve()).with_fluss(fluss, user)

    def run_here(handed: HandedOut) -> object:
        from lakeward.tiering.round.once import tier_once

        return tier_once(plugin, handed, options)

    with open_fluss(fluss, user) as plugin:
        done = tier_now(plugin, TablePath.parse(table), limit_s, run_here)
    if as_json:
        print_json(encode(done))
        return
    who = "no job asked for it, so the round ran here" if done.ran_here else "a running job took it"
    words = f"is in the lake, {duration(done.took_ms)}: {who}"
    print(f"{table} {'was in the lake already' if done.was_there else words}")


def compact_cluster_now(fluss: str, user: str | None, table: str, *, as_json: bool) -> None:
    """Here, beside whichever jobs there are: the lake's fence keeps them apart."""
    from lakeward.config import resolve
    from lakeward.errors import from_wire
    from lakeward.protocol.heartbeat import TableFailed
    from lakeward.tiering.compact.once import compact_once
    from lakeward.tiering.work.options import TieringOptions

    options = TieringOptions.from_config(resolve()).with_fluss(fluss, user)
    with open_fluss(fluss, user) as plugin:
        end = compact_once(plugin, TablePath.parse(table), options)
    if isinstance(end, TableFailed):
        raise from_wire(end.error)
    result = end.result
    replaced, files = (0, 0) if result is None else (result.files_replaced, result.files)
    if as_json:
        print_json({"table": table, "files_replaced": replaced, "files": files, "more": end.force_finished})
        return
    more = "; there is more to do, call it again" if end.force_finished else ""
    print(
        f"{table}: {counted(replaced, 'file')} became {files:,}{more}" if replaced else f"{table}: nothing to rewrite"
    )


def show_jobs(fluss: str, user: str | None, *, as_json: bool) -> None:
    """Jobs by their commits: Fluss has no list of jobs."""
    with _view(fluss, user) as view:
        commits = view.commits(view.lake_tables(), _skip)
    names = sorted({c.job for c in commits})
    commits_by_job = {name: [c for c in commits if c.job == name] for name in names}
    jobs = [
        {
            "name": name,
            "last_commit_at_ms": commits_by_job[name][0].committed_at_ms,
            "commits": len(commits_by_job[name]),
            "tables": sorted({c.path for c in commits_by_job[name]}),
        }
        for name in names
    ]
    if as_json:
        print_json(jobs)
        return
    print_rows(
        ("job", "last commit (UTC)", "commits", "tables"),
        [
            (
                n,
                moment(commits_by_job[n][0].committed_at_ms),
                len(commits_by_job[n]),
                len({c.path for c in commits_by_job[n]}),
            )
            for n in names
        ],
        empty="no job has committed yet; start one: lakeward tier --fluss " + fluss,
    )
