# SPDX-License-Identifier: Apache-2.0
"""The formats of messages, and the columns of a table from the schema or the first values of a topic."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest
from lakeward.model import Column
from lakeward.source.kafka.decode import DECODE_ERRORS, Decoder

METADATA = "_topic string, _partition int, _offset bigint, _timestamp timestamp_ltz(3), _headers map<string, bytes>"

FORMATS = {
    "json": "decode:JsonDecoder",
    "avro": "avro:AvroDecoder",
    "protobuf": "protobuf:ProtobufDecoder",
    "debezium": "debezium:DebeziumDecoder",
    "raw": "decode:RawDecoder",
}
"""Format -> module and class of its decoder. Libraries of a format are imported with it alone."""


def load_decoder(format: str) -> type[Decoder]:
    module, _, name = FORMATS[format].partition(":")
    decoder: type[Decoder] = getattr(importlib.import_module(f"lakeward.source.kafka.{module}"), name)
    return decoder


def topic_columns(topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
    """The columns of the table of a topic. Raises `InvalidRequest` where nothing names them."""
    if config.get("columns"):
        columns = list(parse_columns(config["columns"]))
    else:
        try:
            columns = load_decoder(config["format"]).topic_columns(topic, config, samples)
        except DECODE_ERRORS as error:
            raise InvalidRequest(what=f"topic {topic}", reason=str(error)) from error
    if not columns:
        reason = "there is no message to take columns from; name them with --columns"
        raise InvalidRequest(what=f"topic {topic}", reason=reason)
    key, names = set(config.get("key") or ()), {c.name for c in columns}
    if lacks := key - names:
        raise InvalidRequest(what=f"--key {lacks.pop()}", reason=f"topic {topic} has {', '.join(sorted(names))}")
    nullable = [Column(name=c.name, type=c.type.with_nullable(c.name not in key)) for c in columns]
    return [*nullable, *(parse_columns(METADATA) if config.get("metadata") else ())]
