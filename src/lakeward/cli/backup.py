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


def create(
    target: Target,
    server: Server = None,
    with_lake: Annotated[
        bool, typer.Option("--with-lake", help="Also the lakes that are in folders of the server's machine.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Makes a backup; the server writes it. All that was acknowledged before the call is in it or in the lake. The lake
    itself is in it with --with-lake.

    Example: lakeward backup create /backups --with-lake"""
    from lakeward.protocol import routes
    from lakeward.protocol.codec import decode, encode
    from lakeward.protocol.tables import BackupMade, MakeBackup

    with closing(open_server(server)) as door:
        message = encode(MakeBackup(target=_absolute(target), with_lake=with_lake))
        if not with_lake:  # a server from before 0.2 does not know it
            del message["with_lake"]
        body = door.ask("POST", routes.BACKUPS, message, repeatable=False, timeout_s=WAIT_S)
    made = decode(BackupMade, body)
    if as_json:
        print_json(body)
        return
    print(f"{made.name}: {counted(made.files, 'file')}, {size(made.bytes)}, {duration(made.took_ms)}")
    for name, lake_bytes in made.lakes.items():
        print(f"with lake {name}: {size(lake_bytes)}")
    for name, place in made.lakes_left_out.items():
        way = (
            "make copies of it, or versions of its bucket" if with_lake else "--with-lake takes it where it is a folder"
        )
        note(f"not in it: lake {name}, at {place}; {way}")
    note("not in it: secrets, and the settings of jobs")


def list_found(target: Target, as_json: Json = False) -> None:
    """Whole backups, oldest first.

    Example: lakeward backup list /backups"""
    from lakeward.server.backups import list_backups

    backups = list_backups(_absolute(target))
    if as_json:
        print_json(
            [{"name": m.name, "begun_at_ms": m.begun_at_ms, "version": m.version, "bytes": m.bytes} for m in backups]
        )
        return
    rows = [(m.name, moment(m.begun_at_ms), size(m.bytes), len(m.files), m.version) for m in backups]
    print_rows(("backup", "begun (UTC)", "size", "files", "version"), rows, empty="no whole backup is there")


def restore(
    target: Target,
    data: Annotated[Path, typer.Option("--data", help="The folder to make; it must not be there, or be empty.")],
    name: Annotated[str | None, typer.Option("--name", help="Which one; else the newest.")] = None,
    with_lake: Annotated[
        bool, typer.Option("--with-lake", help="Also its lakes, each to the folder where it was.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Puts a backup back as a data folder, every file checked. The server that had it must not run any more.

    Example: lakeward backup restore /backups --data ./lakeward-data"""
    from lakeward.server.backups import restore_backup

    restored = restore_backup(_absolute(target), data.absolute(), name, with_lake=with_lake)
    made = restored.manifest
    if as_json:
        print_json({"name": made.name, "data": str(data), "files": len(made.files), "lakes": dict(restored.lakes)})
        return
    print(f"{made.name} is in {data}: {counted(len(made.files), 'file')}, {size(made.bytes)}")
    for lake, folder in restored.lakes.items():
        print(f"lake {lake} is in {folder}: {size(made.lake_bytes[lake])}")
    for lake, folder in restored.lakes_there.items():
        note(f"lake {lake} was left as it is: there are files in {folder}")
    for lake, record in made.lakes.items() if not with_lake else ():
        if record.folder and not Path(record.folder).is_dir():
            way = "--with-lake brings it back" if lake in made.lake_files else "bring it back from a copy of its own"
            note(f"lake {lake} is gone from {record.folder}: {way}")
    for line in _start_lines(data, made.lakes):
        note(line)


def _start_lines(data: Path, lakes: Mapping[str, LakeRecord]) -> Iterator[str]:
    """How to start a server on the folder: with the lakes that its tables are in, which no backup holds."""
    from lakeward.server.restored import as_toml

    settings = {key: value for lake in lakes.values() for key, value in lake.all_settings.items()}
    setting_flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    yield f"start it with: {shlex.join(['lakeward', 'server', '--data', str(data), *setting_flags])}"
    if settings == {"datalake.format": "iceberg"}:
        yield f"or with: lakeward up --data {shlex.quote(str(data))}"
    elif lakes:
        yield f"or with: lakeward up --data {shlex.quote(str(data))}, where lakeward.toml has: {as_toml(settings)}"
        yield "secrets of a lake are in no backup: give them as before"
    yield "the folder is marked as restored: the server reads how far its lakes are before it takes writes"


def _absolute(target: str) -> str:
    return target if "://" in target else str(Path(target).absolute())
