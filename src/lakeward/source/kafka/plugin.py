# SPDX-License-Identifier: Apache-2.0
"""The kind `kafka`: its options, and the settings that the server stores, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakeward.errors import InvalidRequest
from lakeward.model import TablePath
from lakeward.source.kafka.registry import check_url
from lakeward.source.kafka.schema import FORMATS
from lakeward.spi.source import SourceKind, SourceOption

if TYPE_CHECKING:
    from lakeward.source.kafka.source import KafkaSource

_SECRET = re.compile(r"password|jaas|secret|token|ssl\.key(store)?\.key")
_FROM_VARIABLE = "env:"
"""Secrets are named by an environment variable: a source's configuration is stored on the server."""


class KafkaKind(SourceKind):
    name, extra = "kafka", "kafka"
    options = (
        SourceOption(name="table", help="the table, as shop.orders; with several topics use --to."),
        SourceOption(name="format", help=f"{', '.join(FORMATS)}.", default="json"),
        SourceOption(name="key", help="primary key columns; none: a log table."),
        SourceOption(name="columns", help="the columns of new tables, as 'id bigint, name string'."),
        SourceOption(name="schema_registry", help="the schema registry's URL."),
        SourceOption(name="schema_file", help="an Avro schema, or a Protobuf descriptor set."),
        SourceOption(name="message", help="the Protobuf message's full name."),
        SourceOption(name="start", help="earliest, latest, a time, or topic:partition:offset,...", default="earliest"),
        SourceOption(
            name="metadata", help="add _topic, _partition, _offset, _timestamp, _headers.", kind=bool, default=False
        ),
        SourceOption(
            name="kafka_option",
            help="a client option, as security.protocol=SSL; a secret as name=env:VARIABLE.",
            is_list=True,
        ),
        SourceOption(
            name="on_recreated", help="stop or continue with a topic that was deleted and made again.", default="stop"
        ),
        SourceOption(
            name="on_new_partitions",
            help="tables with a key: stop or continue when a topic has new partitions.",
            default="stop",
            is_for_run=True,
        ),
    )

    def configure(self, url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        address = urlsplit(url)
        topics = address.path.strip("/")
        if not address.netloc or not topics:
            raise InvalidRequest(what=f"source {url}", reason="write kafka://broker:9092/topic")
        kind = str(options.get("format") or "json")
        if kind not in FORMATS:
            raise InvalidRequest(what=f"--format {kind}", reason=f"there are {', '.join(FORMATS)}")
        if (options.get("table") is None) == (options.get("to") is None):
            raise InvalidRequest(what="--table", reason="name one table for one topic, or a database for all with --to")
        _check_schema(kind, options)
        key = [k.strip() for k in str(options.get("key") or "").split(",") if k.strip()]
        if kind == "debezium" and not key:
            raise InvalidRequest(what="--format debezium", reason="name the primary key with --key")
        names = (
            *("table", "to", "columns", "schema_registry", "schema_file", "message", "start", "metadata"),
            *("freshness", "on_recreated"),
        )
        if options.get("table"):
            TablePath.parse(str(options["table"]))
        return {
            "brokers": address.netloc,
            "topics": topics,
            "format": kind,
            "key": key,
            "buckets": int(options.get("buckets") or 1),
            "client": client_options(options.get("kafka_option") or ()),
            **{name: options[name] for name in names if options.get(name)},
        }

    def open(self, config: Mapping[str, Any], secret: str | None = None) -> KafkaSource:
        from lakeward.source.kafka.source import KafkaSource

        return KafkaSource({**config, "client": with_secrets(config["client"])})


def _check_schema(kind: str, options: Mapping[str, Any]) -> None:
    """Raises `InvalidRequest`."""
    registry, file = options.get("schema_registry"), options.get("schema_file")
    if registry:
        check_url(str(registry))
    if kind in ("avro", "protobuf") and not (registry or file):
        raise InvalidRequest(what=f"--format {kind}", reason="give --schema-registry or --schema-file")
    if kind == "protobuf" and file and not options.get("message"):
        raise InvalidRequest(what="--format protobuf", reason="name the message of --schema-file with --message")


def client_options(texts: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark:
            raise InvalidRequest(what=f"--kafka-option {text}", reason="write it as name=value")
        if _SECRET.search(name) and not value.startswith(_FROM_VARIABLE):
            reason = f"it would be stored on the server: write {name}={_FROM_VARIABLE}NAME, and set the variable NAME"
            raise InvalidRequest(what=f"--kafka-option {name}", reason=reason)
        options[name.removeprefix("kafka.")] = value
    return options


def with_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Values that name an environment variable, with its value. Raises `InvalidRequest`."""
    resolved = {}
    for name, value in options.items():
        variable = value.removeprefix(_FROM_VARIABLE)
        if value.startswith(_FROM_VARIABLE) and variable not in os.environ:
            raise InvalidRequest(
                what=f"--kafka-option {name}", reason=f"the environment variable {variable} is not set"
            )
        resolved[name] = os.environ[variable] if value.startswith(_FROM_VARIABLE) else value
    return resolved


def load() -> KafkaKind:
    return KafkaKind()
