# SPDX-License-Identifier: Apache-2.0
"""`lakeward ingest`: rows from Kafka or Postgres into tables, until it is stopped."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Server, note, print_json
from lakeward.errors import InvalidRequest
from lakeward.protocol import routes
from lakeward.spi.registry import load_source, load_sources
from lakeward.spi.source import SourceKind, SourceOption

if TYPE_CHECKING:
    from lakeward.client import Client

Option = typer.Option


def register(app: typer.Typer) -> None:
    app.command("ingest")(_with_options(ingest, load_sources()))


def ingest(
    origin: Annotated[
        str, typer.Argument(help="kafka://broker:9092/topic, postgres://host/database, or the name of a source.")
    ],
    name: Annotated[str | None, Option(help="The source's name; else made of the origin.")] = None,
    to: Annotated[str | None, Option(help="The Lakeward database of the tables.")] = None,
    buckets: Annotated[int, Option(min=1, help="Buckets of new tables.")] = 1,
    freshness: Annotated[str | None, Option(help="Freshness of new tables, as '30 s'.")] = None,
    until_idle: Annotated[bool, Option(help="End once everything that was there is stored.")] = False,
    server: Server = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Brings rows from Kafka or Postgres into tables, each once, until it is stopped. Run again, it goes on where the
    server says that it was.

    Example: lakeward ingest postgres://me@db.example/shop --tables 'public.*' --to shop"""
    options |= {"to": to, "buckets": buckets, "freshness": freshness}
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    from lakeward.model import StopSignal
    from lakeward.source.ingest import Ingest

    stopping = StopSignal()
    with open_client(server) as client:
        source_name, kind, config = _find_source(client, origin, name, options)
        source = kind.open(config, origin if "://" in origin else None)
        run = Ingest(client, source_name, source, lambda: stopping.wait(0), until_idle=until_idle)
        note(f"source {source_name} ({kind.name}) runs; Ctrl-C ends it, and nothing is lost")
        run.run(kind.start_state(options))
        done = run.status.source
        note(f"source {source_name} ended at {run.last.position or 'the start'}; {done.rows:,} rows in all")
        if as_json:
            print_json({"source": source_name, "position": run.last.position, "rows": done.rows})


def _with_options(command: Callable[..., None], kinds: Sequence[SourceKind]) -> Callable[..., None]:
    """The command with the options that kinds of sources declare, behind its own. An option of several kinds is theirs
    together."""

    @wraps(command)
    def whole(**arguments: Any) -> None:
        command(**arguments)

    declared = signature(command, eval_str=True).parameters.values()
    parameters = {p.name: p for p in declared if p.kind is not Parameter.VAR_KEYWORD}
    for kind in kinds:
        for option in kind.options:
            parameters.setdefault(option.name, _parameter(kind.name, option))
    whole.__signature__ = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters.values()])  # type: ignore[attr-defined]
    whole.__annotations__ = {p.name: p.annotation for p in parameters.values()}
    del whole.__wrapped__
    return whole


def _parameter(kind: str, option: SourceOption) -> Parameter:
    value: Any = list[option.kind] if option.is_list else option.kind  # type: ignore[name-defined]
    value = value | None if option.default is None else value
    annotation = Annotated[value, Option(help=f"{kind.capitalize()}: {option.help}")]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)


def _find_source(
    client: Client, origin: str, name: str | None, options: Mapping[str, Any]
) -> tuple[str, SourceKind, Mapping[str, Any]]:
    """Name, kind and settings. An origin that is a URL is registered; another one is the name of a source."""
    if "://" not in origin:
        shown = client.server.ask("GET", routes.SOURCE.format(source=origin))["source"]
        kind, config, source_name = load_source(shown["kind"]), shown["config"], origin
    else:
        kind = load_source(urlsplit(origin).scheme)
        config, source_name = kind.configure(origin, options), name or _name(kind.name, origin)
        body = {"name": source_name, "kind": kind.name, "config": dict(config), "if_not_exists": True}
        client.server.ask("POST", routes.SOURCES, body)
    for_run = {o.name: options[o.name] for o in kind.options if o.is_for_run and options.get(o.name) != o.default}
    return source_name, kind, {**config, **for_run}


def _name(kind: str, origin: str) -> str:
    address = urlsplit(origin)
    text = f"{kind}-{address.hostname or 'local'}-{address.path.strip('/')}"
    text = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")[:100]
    if not text:
        raise InvalidRequest(what=f"source {origin}", reason="give it a name with --name")
    return text
