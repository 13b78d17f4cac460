# SPDX-License-Identifier: Apache-2.0
"""`lakeward table`: create, alter, drop, list, show, adopt, resync, reconcile-schema, restore-lake, rebuild-lake."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.adopt import adopt
from lakeward.cli.connection import open_client
from lakeward.cli.createfrom import propose_table
from lakeward.cli.files.cellformat import cell_format
from lakeward.cli.files.fileoptions import (
    DateFormat,
    Decimal,
    Delimiter,
    Encoding,
    FalseWords,
    LocaleName,
    Nulls,
    Order,
    Thousands,
    TrueWords,
)
from lakeward.cli.files.filerows import FileShape
from lakeward.cli.output import Json, Lake, Server, Table, counted, duration, lake_params, note, print_json, print_rows
from lakeward.cli.roundprogress import watching
from lakeward.config.options import TABLE_DATALAKE_FRESHNESS as FRESHNESS
from lakeward.errors import InvalidAlter, InvalidRequest
from lakeward.model import FIXED_FOREVER, Column, TablePath, spell_default
from lakeward.protocol import routes
from lakeward.protocol.codec import encode
from lakeward.protocol.operate import ReconcileSchema, ResyncChoice, ResyncTable, SchemaReconciled

if TYPE_CHECKING:
    from lakeward.client import Client

DEFAULT_POOL = "default"
Unalterable = Annotated[str | None, typer.Option(hidden=True, help="Fixed when the table is created.")]
Property = Annotated[
    list[str] | None, typer.Option("--property", help="A table property, key=value; may be given many times.")
]

LOAD_S = 3_600.0
"""Rows that are newer in the lake are loaded within the call."""


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Tables: create, alter, drop, list, show, adopt, resync, reconcile-schema, restore-lake, rebuild-lake.",
        no_args_is_help=True,
    )
    repairs = (resync, reconcile_schema, restore_lake, rebuild_lake)
    for command in (create, alter, drop, list_tables, show, adopt, *repairs):
        group.command(command.__name__.removesuffix("_tables").replace("_", "-"))(command)
    app.add_typer(group, name="table")


def create(
    table: Annotated[str | None, typer.Argument(help="The table, as database.table.")] = None,
    columns: Annotated[str | None, typer.Argument(help='Columns as SQL: "id bigint not null, name string".')] = None,
    primary_key: Annotated[
        str | None, typer.Option(help="Key columns, comma-separated; makes a PK table. Empty: no key.")
    ] = None,
    partition_by: Annotated[str | None, typer.Option(help="Partition columns, or times of them: day(ts).")] = None,
    buckets: Annotated[int, typer.Option(help="Number of buckets.")] = 1,
    bucket_key: Annotated[str | None, typer.Option(help="Columns that decide the bucket, comma-separated.")] = None,
    freshness: Annotated[str | None, typer.Option(help='The longest a row may wait, as "30 s" or "3 min".')] = None,
    no_lake: Annotated[bool, typer.Option("--no-lake", help="Keep this table out of the lake.")] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A table that exists is no error.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="A file with a whole CREATE TABLE statement; - for standard input.")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from", help="A file of rows: proposes columns and a key; --yes makes the table.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --from: make the table as it is proposed.")] = False,
    locale: LocaleName = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    date_order: Order = None,
    date_format: DateFormat = None,
    true: TrueWords = None,
    false: FalseWords = None,
    null: Nulls = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    property: Property = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Makes a table, in the lake first where the server has one.

    Example: lakeward table create shop.orders "id bigint not null, total decimal(10,2)" --primary-key id --freshness
    30s; or lakeward table create shop.orders --from orders.csv
    """
    given: dict[str, Any] = {
        "primary_key": primary_key,
        "partition_by": partition_by,
        "buckets": buckets,
        "bucket_key": bucket_key,
        "properties": parse_properties(property or []),
        "if_not_exists": if_not_exists,
    }
    if file is not None:
        table, columns, given = _from_file(file, given)
    write_command = ""
    if from_file is not None and table is not None:
        cells = cell_format(
            locale=locale,
            decimal=decimal,
            thousands=thousands,
            date_order=date_order,
            date_format=date_format,
            true_words=true or (),
            false_words=false or (),
            nulls=null or (),
        )
        shape = FileShape(delimiter=delimiter, cells=cells, encoding=encoding)
        proposed = propose_table(table, from_file, given, shape)
        proposed.show(as_json=as_json and not yes, is_silent=as_json)
        if not (yes or proposed.is_confirmed(as_json=as_json)):
            if not as_json:
                proposed.explain_next(freshness=freshness, no_lake=no_lake)
            return
        columns, write_command = proposed.sql, proposed.write_command
    if table is None or columns is None:
        raise InvalidRequest(
            what="table create",
            reason='give a name and columns ("id bigint not null, name string"), a name and --from, or --file',
        )
    with open_client(server) as client:
        new_table = client.create_table(table, columns, freshness=freshness, lake=False if no_lake else None, **given)
        advice = _unserved(client, new_table.path)
        for warning in new_table.warnings:
            note(f"warning: {warning}")
        if advice is not None:
            note(f"start a job for it, unless that of `lakeward up` is on its way: {advice}")
        if as_json:
            print_json({"table": new_table.info.to_json(), "warnings": list(new_table.warnings), "advice": advice})
        else:
            print(f"made {new_table.path}, {counted(new_table.info.descriptor.bucket_count, 'bucket')}")
            if from_file is not None:
                note(f"bring its rows in: {write_command}")


def alter(
    table: Table,
    add_column: Annotated[
        list[str] | None, typer.Option("--add-column", "--add", help="A column to add: \"note string default 'x'\".")
    ] = None,
    rename: Annotated[list[str] | None, typer.Option(help="A column to rename, old=new.")] = None,
    drop_column: Annotated[list[str] | None, typer.Option("--drop", help="A column to drop.")] = None,
    widen: Annotated[list[str] | None, typer.Option(help="A column to widen, name=type: total=bigint.")] = None,
    nullable: Annotated[list[str] | None, typer.Option(help="A column that may be NULL from now on.")] = None,
    comment: Annotated[
        list[str] | None, typer.Option(help="A column's comment, name=text; no text removes it.")
    ] = None,
    after: Annotated[list[str] | None, typer.Option(help="Where a column stands: note=id puts it after id.")] = None,
    first: Annotated[str | None, typer.Option(help="The column that becomes the first.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and change nothing.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A property to set, key=value.")] = None,
    reset: Annotated[list[str] | None, typer.Option(help="A property to remove.")] = None,
    freshness: Annotated[str | None, typer.Option(help='The longest a row may wait, as "30 s" or "3 min".')] = None,
    primary_key: Unalterable = None,
    partition_by: Unalterable = None,
    buckets: Unalterable = None,
    bucket_key: Unalterable = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Changes columns (no row is written again), sets or removes properties, changes the freshness.

    Example: lakeward table alter shop.orders --add-column "note string" --freshness "10 s" """
    fixed = {
        "primary key": primary_key,
        "partitioning": partition_by,
        "bucket count": buckets,
        "bucket key": bucket_key,
    }
    for change in (name for name, value in fixed.items() if value is not None):
        raise InvalidAlter(table=table, change=change, reason=f"it is {FIXED_FOREVER}")
    changes: dict[str, str | None] = {**parse_properties(set_ or []), **dict.fromkeys(reset or [])}
    if freshness is not None:
        changes[FRESHNESS.key] = freshness
    columns: dict[str, Any] = {
        "add_columns": ", ".join(add_column or []),
        "rename": _pairs("--rename", rename),
        "drop": drop_column or [],
        "widen": _pairs("--widen", widen),
        "nullable": nullable or [],
        "comments": {name: text or None for name, text in _pairs("--comment", comment).items()},
        "after": {**({first: ""} if first is not None else {}), **_pairs("--after", after)},
    }
    if not changes and not any(columns.values()):
        reason = "name a change: --add-column, --rename, --drop, --widen, --nullable, --comment, --after, --first, "
        raise InvalidRequest(what="table alter", reason=f"{reason}--freshness, --set or --reset")
    with open_client(server) as client:
        planned = client.alter_table(table, **columns, properties=changes, dry_run=True)
        for line in planned.plan if not as_json else ():
            print(line, flush=True)
        altered = planned if dry_run else client.alter_table(table, **columns, properties=changes)
        for warning in altered.warnings:
            note(f"warning: {warning}")
        if as_json:
            print_json({**altered.info.to_json(), **({"plan": list(altered.plan)} if dry_run else {})})
            return
        properties = [f"{key} = {value}" if value is not None else f"{key} is reset" for key, value in changes.items()]
        schema = [f"schema {altered.info.schema.schema_id}"] if altered.plan else []
        done = "would alter" if dry_run else "altered"
        print(f"{done} {altered.path}: {', '.join([*schema, *properties]) or 'nothing changes'}")


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Raises `InvalidRequest`."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or name in pairs:
            raise InvalidRequest(what=f"{option} {text}", reason="name=value is expected, and each name once")
        pairs[name] = value
    return pairs


def drop(
    table: Table,
    with_lake: Annotated[
        bool, typer.Option("--with-lake", help="Remove the lake table too, or one that stayed after a drop.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Removes the hot side of a table. The lake table stays as it is, unless --with-lake.

    Example: lakeward table drop shop.orders --yes"""
    lost = "all of its rows are lost, with their history" if with_lake else "rows that are not in the lake yet are lost"
    _confirm(f"drop of {table}", f"Drop {table}{' and its lake table' if with_lake else ''}? Then {lost}.", yes=yes)
    with open_client(server) as client:
        client.drop_table(table, with_lake=with_lake)
    if as_json:
        print_json({"dropped": table, **({"with_lake": True} if with_lake else {})})
    else:
        print(f"dropped {table}{' and its lake table' if with_lake else '; its lake table is untouched'}")


def _confirm(what: str, question: str, *, yes: bool) -> None:
    """Raises `InvalidRequest` if there is no terminal to ask at."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)
    elif not yes:
        raise InvalidRequest(what=what, reason=f"{question} Pass --yes")


def list_tables(server: Server = None, as_json: Json = False) -> None:
    """Every table with its state.

    Example: lakeward table list"""
    with open_client(server) as client:
        listed = client.list_tables()
        status = {t["path"]: t for t in client.server.ask("GET", routes.STATUS)["tables"]}
    if as_json:
        print_json([{"path": path, "status": status.get(path)} for path in listed])
        return
    rows = [(p, *_brief(status.get(p))) for p in listed]
    print_rows(("table", "state", "freshness", "lag"), rows, empty="no tables; make one with `lakeward table create`")


def show(table: Table, server: Server = None, as_json: Json = False) -> None:
    """One table: columns, keys, properties.

    Example: lakeward table show shop.orders"""
    with open_client(server) as client:
        info = client.show_table(table)
    if as_json:
        print_json(info.to_json())
        return
    descriptor = info.descriptor
    print_rows(("column", "type", "comment"), [(c.name, _typed(c), c.comment or "") for c in info.schema.columns])
    facts = (
        ("primary key", ", ".join(descriptor.primary_key) or "none (log table)"),
        ("partitioned by", ", ".join(descriptor.partition_keys) or "-"),
        (
            "buckets",
            f"{descriptor.bucket_count} by {', '.join(descriptor.bucket_keys) or 'turn'} "
            f"({descriptor.bucket_function})",
        ),
        ("table id", info.table_id),
        *sorted(descriptor.properties.items()),
    )
    print()
    print_rows(("", ""), facts)


def _typed(column: Column) -> str:
    default = "" if column.default is None else f" DEFAULT {spell_default(column.default, column.type)}"
    return f"{column.type}{default}"


def resync(
    table: Table,
    gap: Annotated[
        bool, typer.Option("--gap", help="Log tables: accept that rows between are in neither, and record it.")
    ] = False,
    discard_newer: Annotated[
        bool, typer.Option("--discard-newer", help="After a restore: rows that are newer in the lake are lost.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option("--wait", help="Return when every bucket has been compared; seconds at the most."),
    ] = None,
    lake: Lake = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """The next rounds make lake and hot store equal again, after either was restored, rolled back or changed by others.
    After a restore, rows that are newer in the lake are loaded into the hot store first.

    Example: lakeward table resync shop.orders"""
    choice = ResyncChoice.GAP if gap else ResyncChoice.RESYNC
    with open_client(server) as client:
        path = routes.RESYNC.format(table=TablePath.parse(table))
        asked = encode(ResyncTable(choice=choice, discard_newer=discard_newer))
        lake_query = lake_params(lake)
        body = client.server.ask("POST", path, asked, params=lake_query, repeatable=False, timeout_s=LOAD_S)
        if wait is not None:
            with watching(server, table):
                done = client.tier_now(table, limit_s=wait, lake=lake)
            shown, before = routes.TABLE_STATUS.format(table=TablePath.parse(table)), body["generation"]
            body = client.server.ask("GET", shown, params=lake_params(lake))
            rounds = body["generation"] - before  # each round of a resync begins a generation
    if as_json:
        print_json(body)
    elif wait is None:
        print(f"{table}: the next round will {'record the gap' if gap else 'resync'}")
    else:
        work = counted(rounds, "round") if rounds else "no round was needed"
        words = f"the resync is through: {work}, {duration(done.took_ms)}"
        print(f"{table}: {words}; `lakeward verify {table}` compares every row")


def reconcile_schema(
    table: Table,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Columns that another engine added become the table's own.")
    ] = False,
    lake: Lake = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Undoes what another engine changed in the columns or the partitioning of the lake table, where rounds need it.
    Columns that it added stay, and are shown.

    Example: lakeward table reconcile-schema shop.orders --dry-run"""
    with open_client(server) as client:
        request = ReconcileSchema(dry_run=dry_run, take_over=take_over)
        route = routes.RECONCILE_SCHEMA.format(table=TablePath.parse(table))
        done = client.server.call(SchemaReconciled, "POST", route, request, params=lake_params(lake))
    if as_json:
        shown = {"table": table, "changes": list(done.changes), "dry_run": dry_run, "foreign": list(done.foreign)}
        print_json(shown)
        return
    for change in done.changes:
        print(f"{'would change: ' if dry_run else ''}{change}")
    for column in done.foreign if not take_over else ():
        command = f"lakeward table reconcile-schema {table} --take-over"
        print(f"column {column}: another engine added it, and it stays; `{command}` adds it to the table")
    if not done.changes:
        print(f"the lake table of {table} fits; columns that others added or moved do no harm")


def restore_lake(
    table: Table,
    anew: Annotated[
        bool, typer.Option("--anew", help="Where nothing is left: an empty lake table, and a resync into it.")
    ] = False,
    lake: Lake = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Puts a lake table back that somebody dropped, from the newest of the files that are left.

    Example: lakeward table restore-lake shop.orders"""
    with open_client(server) as client:
        source = client.restore_lake(table, anew=anew, lake=lake)
    if as_json:
        print_json({"table": table, "source": source})
    elif source is None:
        print(f"made the lake table of {table} anew; the next round writes what the hot store has")
    else:
        print(f"the lake table of {table} is back, from {source}")


def parse_properties(pairs: list[str]) -> dict[str, str]:
    properties = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest(what=f"property {pair!r}", reason="write it as key=value")
        properties[key.strip()] = value.strip()
    return properties


def _from_file(file: Path, given: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    from lakeward.cli.ddl import parse_create

    statement = parse_create(sys.stdin.read() if str(file) == "-" else file.read_text())
    merged = {
        "primary_key": statement.primary_key if given["primary_key"] is None else given["primary_key"],
        "partition_by": given["partition_by"] or statement.partition_by,
        "buckets": statement.buckets if given["buckets"] == 1 else given["buckets"],
        "bucket_key": given["bucket_key"] or statement.bucket_key,
        "properties": {**statement.properties, **given["properties"]},
        "if_not_exists": given["if_not_exists"] or statement.if_not_exists,
    }
    return statement.path, statement.columns, merged


def _unserved(client: Client, path: str) -> str | None:
    """The command that would serve the table's pool; None where a live job does, or where the table has no lake."""
    status = next((t for t in client.server.ask("GET", routes.STATUS)["tables"] if t["path"] == path), None)
    if status is None or status["served"] or status["state"] == "disabled":
        return None
    pool = "" if status["pool"] == DEFAULT_POOL else f" --pool {shlex.quote(status['pool'])}"
    return f"lakeward tier --server {client.url}{pool}"


def _brief(status: dict[str, Any] | None) -> tuple[str, str, str]:
    if status is None:
        return ("no lake", "-", "-")
    return (status["state"], duration(status["freshness_ms"]), duration(status["lag_ms"]))


def rebuild_lake(
    table: Table,
    discard_older: Annotated[
        bool, typer.Option("--discard-older", help="Also where the lake alone has some rows: they are lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    lake: Lake = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Removes the lake table and writes it again from the hot store, where others changed it and there is no way back.

    Example: lakeward table rebuild-lake shop.orders --yes"""
    question = f"Remove the lake table of {table}, with its history, and write it again from the hot store?"
    _confirm(f"rebuild-lake of {table}", question, yes=yes)
    with open_client(server) as client:
        client.rebuild_lake(table, discard_older=discard_older, lake=lake)
    if as_json:
        print_json({"rebuilding": table})
    else:
        print(f"{table}: its lake table is new and empty; the next round writes what the hot store has")
