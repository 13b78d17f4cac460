# SPDX-License-Identifier: Apache-2.0
"""`lakeward catalog`: the lake's catalog. `export` registers every table in another catalog."""

from __future__ import annotations

from typing import Annotated

import typer
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NotInstalledError, TableAlreadyExistsError

from lakeward.cli.output import Json, print_json
from lakeward.client.options import resolve_server
from lakeward.config import options
from lakeward.errors import InvalidConfig, LakeMismatch
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load

group = typer.Typer(help="The lake's catalog: register its tables elsewhere.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="catalog")


@group.callback()
def catalog() -> None:
    """The lake's catalog: register its tables elsewhere."""


@group.command("export")
def export(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The other catalog: its name in PyIceberg's configuration (~/.pyiceberg.yaml), or its properties as "
            "k=v,k=v.",
        ),
    ],
    source: Annotated[
        str | None, typer.Option("--from", help="The lake's catalog as k=v,k=v; without it the server's.")
    ] = None,
    server: Annotated[str | None, typer.Option("--server", help="URL of the server.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only tables of this namespace.")] = None,
    as_json: Json = False,
) -> None:
    """Registers every lake table in another catalog, at its metadata of this moment. Files stay where they are.

    A table that is there already and points at the same metadata is left alone; one that differs is named and left
    alone too.

    Example: lakeward catalog export --to type=sql,uri=sqlite:///other.db,warehouse=file:///lake"""
    lake, target = _open_source(source, server), _open_target(to)
    outcomes = [
        (n, _register(lake.connection.catalog, target, n)) for n in tables_of(lake.connection.catalog, namespace)
    ]
    if as_json:
        print_json([{"table": ".".join(name), "outcome": outcome} for name, outcome in outcomes])
    else:
        for name, outcome in outcomes:
            print(f"{'.'.join(name)}  {outcome}")
    different = [".".join(n) for n, outcome in outcomes if outcome.startswith("differs")]
    if different:
        raise LakeMismatch(
            table=", ".join(different),
            diff="the other catalog holds other metadata under that name; drop it there first",
        )


def tables_of(catalog: Catalog, namespace: str | None) -> list[tuple[str, ...]]:
    spaces = [(namespace,)] if namespace is not None else catalog.list_namespaces()
    with lake_errors("", "list tables"):
        return sorted(table for space in spaces for table in catalog.list_tables(space))


def _register(source: Catalog, target: Catalog, name: tuple[str, ...]) -> str:
    location = source.load_table(name).metadata_location
    with lake_errors(".".join(name), "register"):
        target.create_namespace_if_not_exists(name[:-1])
        try:
            target.register_table(name, location)
            return "registered"
        except TableAlreadyExistsError:
            known_location = target.load_table(name).metadata_location
    return "there already" if known_location == location else f"differs: {known_location}"


def _open_source(text: str | None, server: str | None) -> IcebergLakeStorage:
    config = resolve_server(server)
    properties = (
        parse_properties(text)
        if text is not None
        else {"type": "rest", "uri": f"{config.get(options.CLIENT_SERVER).rstrip('/')}/iceberg"}
    )
    token = config.get(options.CLIENT_TOKEN)
    if text is None and token is not None:
        properties["token"] = token
    return load(properties)


def _open_target(text: str) -> Catalog:
    try:
        if "=" not in text:
            return load_catalog(text)
        properties = parse_properties(text)
        return load_catalog(properties.pop("name", "export"), **properties)
    except (ValueError, KeyError, NotInstalledError) as error:
        raise InvalidConfig(where=f"--to {text}", reason=str(error)) from error


def parse_properties(text: str) -> dict[str, str]:
    """`k=v,k=v`; a value may hold `=` but no comma."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    wrong = [key for key, sign, _ in pairs if not sign or not key.strip()]
    if wrong or not pairs:
        raise InvalidConfig(where=text, reason="write properties as k=v,k=v")
    return {key.strip(): value.strip() for key, _, value in pairs}
