# SPDX-License-Identifier: Apache-2.0
"""`lakeward backup create|list|restore`: the server's folder, copied while it runs, and put back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, counted, duration, moment, note, print_json, print_rows, size

if TYPE_CHECKING:
    from lakeward.server.restored import LakeRecord

WAIT_S = 4 * 3600.0
"""A backup of some hundred gigabytes ends within that."""

Target = Annotated[str, typer.Argument(help="A folder, or s3://bucket/prefix; backups lie below it by their names.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The server's folder: copied while it runs, and put back.", no_args_is_help=True)
    group.command("create")(create)
    group.command("list")(list_found)
    group.command("restore")(restore)
    app.add_typer(group, name="backup")


def create(target: Target, server: Server = None, as_json: Json = False) -> None:
    """Makes a backup; the server writes it. All that was acknowledged before the call is in it or in the lake. The lake
    itself is not.

    Example: lakeward backup create /backups"""
    from lakeward.protocol import routes
    from lakeward.protocol.backup import BackupMade, MakeBackup
    from lakeward.protocol.codec import encode

    with closing(open_server(server)) as door:
        message = encode(MakeBackup(target=_absolute(target)))
        body = door.ask("POST", routes.BACKUPS, message, repeatable=False, timeout_s=WAIT_S)
    made = BackupMade(**body)
    if as_json:
        print_json(body)
    else:
        print(f"{made.name}: {counted(made.files, 'file')}, {size(made.bytes)}, {duration(made.took_ms)}")
        note("in it: logs, keys, state and settings of the server. Not in it: files of lake tables (keep versions of")
        note("their bucket, or copy their folder), secrets, and the settings of jobs")


def list_found(target: Target, as_json: Json = False) -> None:
    """Whole backups, oldest first.

    Example: lakeward backup list /backups"""
    from lakeward.server.backups import list_backups

    found = list_backups(_absolute(target))
    if as_json:
        print_json(
            [{"name": m.name, "begun_at_ms": m.begun_at_ms, "version": m.version, "bytes": m.bytes} for m in found]
        )
        return
    rows = [(m.name, moment(m.begun_at_ms), size(m.bytes), len(m.files), m.version) for m in found]
    print_rows(("backup", "begun (UTC)", "size", "files", "version"), rows, empty="no whole backup is there")


def restore(
    target: Target,
    data: Annotated[Path, typer.Option("--data", help="The folder to make; it must not be there, or be empty.")],
    name: Annotated[str | None, typer.Option("--name", help="Which one; else the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Puts a backup back as a data folder, every file checked. The server that had it must not run any more.

    Example: lakeward backup restore /backups --data ./lakeward-data"""
    from lakeward.server.backups import restore_backup

    restored = restore_backup(_absolute(target), data.absolute(), name)
    if as_json:
        print_json({"name": restored.name, "data": str(data), "files": len(restored.files)})
        return
    print(f"{restored.name} is in {data}: {counted(len(restored.files), 'file')}, {size(restored.bytes)}")
    for line in _start_lines(data, restored.lakes):
        note(line)


def _start_lines(data: Path, lakes: Mapping[str, LakeRecord]) -> Iterator[str]:
    """How to start a server on the folder: with the lakes that its tables are in, which no backup holds."""
    from lakeward.server.restored import as_toml

    settings = {key: value for lake in lakes.values() for key, value in lake.all_settings.items()}
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    yield f"start it with: {shlex.join(['lakeward', 'server', '--data', str(data), *given])}"
    if settings == {"datalake.format": "iceberg"}:
        yield f"or with: lakeward up --data {shlex.quote(str(data))}"
    elif lakes:
        yield f"or with: lakeward up --data {shlex.quote(str(data))}, where lakeward.toml has: {as_toml(settings)}"
        yield "secrets of a lake are in no backup: give them as before"
    yield "the folder is marked as restored: the server reads how far its lakes are before it takes writes"


def _absolute(target: str) -> str:
    return target if "://" in target else str(Path(target).absolute())
