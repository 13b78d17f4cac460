# SPDX-License-Identifier: Apache-2.0
"""`lakeward ingest`: rows from Kafka or Postgres into tables, until it is stopped."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Server, note, print_json
from lakeward.errors import InvalidRequest
from lakeward.protocol import routes

if TYPE_CHECKING:
    from lakeward.client import Client
    from lakeward.spi.source import SourceKind

Option = typer.Option


def register(app: typer.Typer) -> None:
    app.command("ingest")(ingest)


def ingest(
    origin: Annotated[
        str, typer.Argument(help="kafka://broker:9092/topic, postgres://host/database, or the name of a source.")
    ],
    name: Annotated[str | None, Option(help="The source's name; else made of the origin.")] = None,
    tables: Annotated[str | None, Option(help="Postgres: patterns as public.*,sales.orders.")] = None,
    exclude: Annotated[str | None, Option(help="Postgres: tables that are left out.")] = None,
    text: Annotated[str | None, Option(help="Postgres: columns stored as their text, as public.t.c.")] = None,
    to: Annotated[str | None, Option(help="The Lakeward database of the tables.")] = None,
    table: Annotated[str | None, Option(help="Kafka: the table, as shop.orders; with several topics use --to.")] = None,
    format: Annotated[str, Option(help="Kafka: json, avro, protobuf, debezium or raw.")] = "json",
    key: Annotated[str | None, Option(help="Kafka: primary key columns; none: a log table.")] = None,
    columns: Annotated[
        str | None, Option(help="Kafka: the columns of JSON values, as 'id bigint, name string'.")
    ] = None,
    schema_registry: Annotated[str | None, Option(help="Kafka: the schema registry's URL.")] = None,
    schema_file: Annotated[str | None, Option(help="Kafka: an Avro schema, or a Protobuf descriptor set.")] = None,
    message: Annotated[str | None, Option(help="Kafka: the Protobuf message's full name.")] = None,
    start: Annotated[str, Option(help="Kafka: earliest, latest, a time, or topic:partition:offset,...")] = "earliest",
    metadata: Annotated[bool, Option(help="Kafka: add _topic, _partition, _offset, _timestamp, _headers.")] = False,
    kafka_option: Annotated[list[str] | None, Option(help="Kafka: a client option, as security.protocol=SSL.")] = None,
    on_recreated: Annotated[
        str, Option(help="Kafka: stop or continue with a topic that was deleted and made again.")
    ] = "stop",
    on_new_partitions: Annotated[
        str, Option(help="Kafka, tables with a key: stop or continue when a topic has new partitions.")
    ] = "stop",
    buckets: Annotated[int, Option(min=1, help="Buckets of new tables.")] = 1,
    freshness: Annotated[str | None, Option(help="Freshness of new tables, as '30 s'.")] = None,
    until_idle: Annotated[bool, Option(help="End once everything that was there is stored.")] = False,
    resnapshot: Annotated[bool, Option(help="Postgres: read every table again, with a new slot.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Brings rows from Kafka or Postgres into tables, each once, until it is stopped. Run again, it goes on where the
    server says that it was.

    Example: lakeward ingest postgres://me@db.example/shop --tables 'public.*' --to shop"""
    arguments = {
        k: v
        for k, v in locals().items()
        if k not in ("origin", "name", "server", "until_idle", "resnapshot", "as_json")
    }
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    from lakeward.model import StopSignal
    from lakeward.source.ingest import Ingest

    stopping = StopSignal()
    with open_client(server) as client:
        source_name, kind, config = _find_source(client, origin, name, arguments)
        source = kind.open(config, origin if "://" in origin else None)
        run = Ingest(client, source_name, source, lambda: stopping.wait(0), until_idle=until_idle)
        note(f"source {source_name} ({kind.name}) runs; Ctrl-C ends it, and nothing is lost")
        run.run({"resnapshot": True} if resnapshot else None)
        done = run.status.source
        note(f"source {source_name} ended at {run.last.position or 'the start'}; {done.rows:,} rows in all")
        if as_json:
            print_json({"source": source_name, "position": run.last.position, "rows": done.rows})


def _find_source(
    client: Client, origin: str, name: str | None, arguments: dict[str, Any]
) -> tuple[str, SourceKind, Mapping[str, Any]]:
    """Name, kind and settings. An origin that is a URL is registered; another one is the name of a source."""
    from lakeward.spi.registry import load_source

    accepted = {
        k: v for k, v in arguments.items() if k == "on_new_partitions" and v == "continue"
    }  # for this run alone
    if "://" not in origin:
        shown = client.server.ask("GET", routes.SOURCE.format(source=origin))["source"]
        return origin, load_source(shown["kind"]), {**shown["config"], **accepted}
    kind = load_source(urlsplit(origin).scheme)
    config, source_name = kind.configure(origin, arguments), name or _name(origin)
    body = {"name": source_name, "kind": kind.name, "config": dict(config), "if_not_exists": True}
    client.server.ask("POST", routes.SOURCES, body)
    return source_name, kind, {**config, **accepted}


def _name(origin: str) -> str:
    address = urlsplit(origin)
    text = f"{address.scheme.replace('postgresql', 'postgres')}-{address.hostname or 'local'}-{address.path.strip('/')}"
    text = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")[:100]
    if not text:
        raise InvalidRequest(what=f"source {origin}", reason="give it a name with --name")
    return text
