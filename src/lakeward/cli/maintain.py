# SPDX-License-Identifier: Apache-2.0
"""`lakeward maintain`: what a compaction of a lake table would do, and whether it does so by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.cluster import Fluss, FlussUser, check_no_server, compact_cluster_now, open_fluss
from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Lake, Server, Table, counted, lake_params, parse_lake, print_json
from lakeward.config import options
from lakeward.config.tables import SIDE, side_prefix
from lakeward.errors import InvalidConfig, TableBusy
from lakeward.model import SideName, TablePath, side_table
from lakeward.protocol import routes

if TYPE_CHECKING:
    from lakeward.spi import HotPlugin
    from lakeward.tiering.compact.plan import CompactionPlan


NOW = (
    "{label} is compacted as soon as a slot is free, where there is something to rewrite: "
    "`lakeward maintain {named}` says what, `lakeward rounds {named}` what was done"
)


def register(app: typer.Typer) -> None:
    app.command("maintain")(maintain)


def maintain(
    table: Table,
    now: Annotated[bool, typer.Option("--now", help="Compact it as soon as a slot is free.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what would be rewritten, and why (default).")] = False,
    on: Annotated[
        bool | None, typer.Option("--on/--off", help="Whether Lakeward looks after its lake table by itself.")
    ] = None,
    lake: Lake = None,
    server: Server = None,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    as_json: Json = False,
) -> None:
    """Says what a compaction of the table's lake files would do; or asks for one, or switches maintenance. With --fluss
    a compaction that is asked for runs here, beside any jobs.

    Example: lakeward maintain shop.orders --explain"""
    path = TablePath.parse(table)
    label, named = (table, table) if lake is None else (f"{table} ({lake})", f"{table} --lake {lake}")
    if fluss is not None:
        check_no_server(server, lake)
        _maintain_cluster(fluss, fluss_user, path, now=now, explain=explain, on=on, as_json=as_json)
        return
    with open_client(server) as client:
        if on is not None:
            client.alter_table(table, properties={_key(lake): str(on).lower()})
            _say(as_json, {"table": table, "on": on}, f"maintenance of {label} is {'on' if on else 'off'}")
        if now:
            body = client.server.ask("POST", routes.MAINTAIN.format(table=path), params=lake_params(lake))
            _say(as_json, body, NOW.format(label=label, named=named))
        if explain or not (now or on is not None):
            _explain(client.plugin, path, as_json, label, parse_lake(lake))


def _key(lake: str | None) -> str:
    """Maintenance of one side, or of all."""
    key, side = options.TABLE_DATALAKE_AUTO_MAINTENANCE.key, parse_lake(lake)
    return key if side is None else f"{side_prefix(side)}{key.removeprefix(SIDE)}"


def _maintain_cluster(
    fluss: str, user: str | None, path: TablePath, *, now: bool, explain: bool, on: bool | None, as_json: bool
) -> None:
    if on is not None:
        key = options.TABLE_DATALAKE_AUTO_COMPACTION.key
        raise InvalidConfig(
            where="--on/--off", reason=f"of a Fluss table: ALTER TABLE {path} SET ('{key}' = ...) there"
        )
    if now:
        compact_cluster_now(fluss, user, str(path), as_json=as_json)
    if explain or not now:
        with open_fluss(fluss, user) as plugin:
            _explain(plugin, path, as_json, str(path))


def _explain(plugin: HotPlugin, path: TablePath, as_json: bool, label: str, side: SideName | None = None) -> None:
    from lakeward.config import resolve
    from lakeward.model import SystemClock
    from lakeward.spi import load_lake
    from lakeward.tiering.compact.ground import load_compaction
    from lakeward.tiering.compact.plan import describe_compaction
    from lakeward.tiering.work.options import TieringOptions

    if side is not None:
        plugin.coordinator().committed(path, side)  # raises where the table has no such side
    table = side_table(plugin.store().load_table(path), side)
    name, lake_options = plugin.lake_options(table, side)  # of a Fluss table that never was in a lake, this says so
    if table.descriptor.properties.get(options.TABLE_DATALAKE_ENABLED.key) == "false":
        raise TableBusy(table=label, reason="the lake is switched off for it; set table.datalake.enabled to true")
    lake = load_lake(name, lake_options)
    plan = load_compaction(table, lake, TieringOptions.from_config(resolve()), SystemClock()).plan
    if as_json:
        groups = describe_compaction(plan)
        print_json({"table": str(path), "files": plan.files, "unplaced_files": plan.unplaced, "groups": groups})
    else:
        _print_plan(label, plan)


def _print_plan(label: str, plan: CompactionPlan) -> None:
    if plan.unplaced:
        files = counted(plan.unplaced, "data file")
        print(f"{label}: {files} of another engine without a recorded bucket; Lakeward leaves them to that engine")
    if not plan.groups:
        print(f"{label}: {counted(plan.files, 'data file')}, nothing to rewrite")
        return
    saved = counted(plan.saved_files, "file")
    print(f"{label}: {counted(plan.files, 'data file')}; rewriting {plan.bytes:,} bytes saves readers {saved}")
    for group in plan.groups:
        files, rows = counted(len(group.files), "file"), counted(group.rows, "row")
        what = f"{files} ({group.bytes:,} bytes, {rows}, {group.deleted:,} deleted)"
        where = "files without a recorded bucket" if group.is_unplaced else f"bucket {group.bucket}"
        print(f"  {where}: {group.why} {what}, {counted(group.saved_files, 'file')} fewer")


def _say(as_json: bool, body: object, words: str) -> None:
    print_json(body) if as_json else print(words)
