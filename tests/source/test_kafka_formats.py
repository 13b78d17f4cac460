# SPDX-License-Identifier: Apache-2.0
"""Messages of Kafka as rows, without a broker: Avro and Protobuf by files and by a schema registry, and Debezium's
envelopes. tests/source/test_kafka.py has the same formats on Spark."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pool, message_factory

from lakeward.errors import InvalidRequest, SourceStopped, SourceUnavailable
from lakeward.model import Column, Int64Type
from lakeward.source.changes import UNSET
from lakeward.source.kafka.decode import Decoder
from lakeward.source.kafka.plugin import KafkaKind
from lakeward.source.kafka.protobuf import read_frame
from lakeward.source.kafka.registry import SchemaRegistry
from lakeward.source.kafka.schema import load_decoder, topic_columns
from tests.kit.schemaregistry import SchemaRegistryServer, compile_protobuf, frame

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
ORDER_2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": ["null", "double"], "default": None}]}
PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "money.proto";
message Note { string text = 1; }
message Order { int64 id = 1; optional string name = 2; bytes body = 3; google.protobuf.Timestamp at = 4;
  repeated string tags = 5; map<string, int32> counts = 6; Money price = 7; enum Kind { NEW = 0; PAID = 1; }
  Kind kind = 8;
  message Inner { int32 n = 1; } }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; int64 cents = 2; }'


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    server = SchemaRegistryServer()
    yield server
    server.close()


def avro(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def open_decoder(format: str, config: dict[str, Any], samples: list[bytes], key: tuple[str, ...] = ()) -> Decoder:
    whole = {"format": format, "key": list(key), **config}
    return load_decoder(format)(topic_columns("orders", whole, samples), key, whole)


def types_of(columns: list[Column]) -> dict[str, str]:
    return {c.name: str(c.type).removesuffix(" NOT NULL") for c in columns}


def test_avro_messages_have_the_schema_that_they_name(registry: SchemaRegistryServer) -> None:
    first, second = registry.register("orders-value", ORDER), registry.register("orders-value", ORDER_2)
    decoder = open_decoder("avro", {"schema_registry": registry.url}, [], ("id",))
    values = [
        frame(first, avro(ORDER, {"id": 1, "name": "a"})),
        frame(second, avro(ORDER_2, {"id": 2, "name": None, "price": 1.5})),
        frame(9_999, b"x"),
        b"no frame",
        None,
    ]
    key = frame(registry.register("orders-key", '"long"'), avro("long", 7))
    decoded = decoder.decode([None, None, None, None, key], values)
    assert decoded.rows == [{"id": 1, "name": "a"}, {"id": 2, "name": None, "price": 1.5}]
    assert [(bad.place, bad.reason) for bad in decoded.bad] == [
        (2, "it cannot be read: the schema registry has no /schemas/ids/9999"),
        (3, "it cannot be read: it does not begin with a schema id"),
    ]
    assert decoded.deletes == {4: {"id": 7}}


def test_a_newer_schema_names_the_columns_that_a_table_lacks(registry: SchemaRegistryServer) -> None:
    first, second = registry.register("orders-value", ORDER), registry.register("other-value", ORDER_2)
    decoder = open_decoder("avro", {"schema_registry": registry.url}, [])
    assert types_of(list(decoder.columns)) == {"id": "BIGINT", "name": "STRING"}
    newer = frame(second, avro(ORDER_2, {"id": 2, "name": None, "price": 1.5}))
    assert [bad.column for bad in decoder.decode([None], [newer]).bad] == ["price"]
    assert types_of(decoder.message_columns([newer, frame(first, b"")]))["price"] == "DOUBLE"


def test_subjects_of_other_names_are_found_by_a_message(registry: SchemaRegistryServer) -> None:
    number = registry.register("shop.Order", ORDER)
    message = frame(number, avro(ORDER, {"id": 1, "name": "a"}))
    decoder = open_decoder("avro", {"schema_registry": registry.url}, [b"no frame", message])
    assert decoder.decode([None], [message]).rows == [{"id": 1, "name": "a"}]
    with pytest.raises(InvalidRequest, match="no message of the topic names a schema"):
        open_decoder("avro", {"schema_registry": registry.url}, [b"no frame"])


def test_schemas_may_refer_to_others(registry: SchemaRegistryServer) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    registry.register("money", money)
    order = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "id", "type": "int"}, {"name": "price", "type": "Money"}],
    }
    number = registry.register("orders-value", order, references=(("Money", "money", 1),))
    decoder = open_decoder("avro", {"schema_registry": registry.url}, [])
    whole = json.loads(json.dumps(order).replace('"Money"', json.dumps(money)))
    message = frame(number, avro(whole, {"id": 1, "price": {"cents": 250}}))
    assert decoder.decode([None], [message]).rows == [{"id": 1, "price": {"cents": 250}}]
    assert types_of(list(decoder.columns)) == {"id": "INT", "price": "ROW<`cents` BIGINT>"}


@pytest.mark.parametrize("login", ["Basic " + b64encode(b"me:secret").decode(), "Bearer abc"])
def test_a_registry_with_logins(registry: SchemaRegistryServer, login: str) -> None:
    registry.login = login
    number = registry.register("orders-value", ORDER)
    refused = SchemaRegistry(registry.url, "s", "me:wrong")
    with pytest.raises(SourceStopped, match=r"it refuses the credentials \(401\).*LAKEWARD_SCHEMA_REGISTRY_AUTH"):
        refused.schema(number)
    accepted = SchemaRegistry(registry.url, "s", "me:secret" if login.startswith("Basic") else login)
    assert json.loads(accepted.schema(number).text) == ORDER
    assert "secret" not in repr(accepted)


def test_a_registry_that_is_away_is_asked_again(registry: SchemaRegistryServer) -> None:
    url = registry.url
    number = registry.register("orders-value", ORDER)
    decoder = open_decoder("avro", {"schema_registry": url}, [])
    decoder.decode([None], [frame(number, avro(ORDER, {"id": 1, "name": "a"}))])
    assert len(registry.asked) == 2
    decoder.decode([None], [frame(number, avro(ORDER, {"id": 2, "name": "a"}))])
    assert len(registry.asked) == 2
    away = SchemaRegistry("http://127.0.0.1:1", "s")
    with pytest.raises(SourceUnavailable, match="schema registry"):
        away.schema(1)


def protobuf_message(files: dict[str, str], name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in compile_protobuf(files).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ORDER_COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "body": "BYTES",
    "at": "TIMESTAMP_LTZ(6)",
    "tags": "ARRAY<STRING>",
    "counts": "MAP<STRING, INT>",
    "price": "ROW<`currency` STRING, `cents` BIGINT>",
    "kind": "STRING",
}


def order_message() -> tuple[bytes, dict[str, Any]]:
    message = protobuf_message({"main.proto": PROTO, "money.proto": MONEY}, "shop.Order")()
    message.id, message.body, message.kind = 2**40, b"\x00\xff", 1
    message.at.FromDatetime(datetime(2026, 1, 31, 12, tzinfo=UTC))
    message.tags.extend(["a", "b"])
    message.counts["x"] = 3
    message.price.cents = 250
    row = {
        "id": 2**40,
        "name": None,
        "body": b"\x00\xff",
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "tags": ["a", "b"],
        "counts": [("x", 3)],
        "price": {"currency": "", "cents": 250},
        "kind": "PAID",
    }
    return message.SerializeToString(), row


def test_protobuf_with_a_descriptor_set(tmp_path: Path) -> None:
    file = tmp_path / "orders.bin"
    file.write_bytes(compile_protobuf({"main.proto": PROTO, "money.proto": MONEY}).SerializeToString())
    decoder = open_decoder("protobuf", {"schema_file": str(file), "message": "shop.Order"}, [])
    assert types_of(list(decoder.columns)) == ORDER_COLUMNS
    body, row = order_message()
    decoded = decoder.decode([None, None], [body, b"\xff\xff"])
    assert decoded.rows == [row]
    assert [bad.place for bad in decoded.bad] == [1]
    with pytest.raises(InvalidRequest, match="no message of this full name"):
        open_decoder("protobuf", {"schema_file": str(file), "message": "shop.Nothing"}, [])


def test_protobuf_with_a_schema_registry(registry: SchemaRegistryServer) -> None:
    registry.register("money", MONEY, "PROTOBUF")
    number = registry.register("orders-value", PROTO, "PROTOBUF", (("money.proto", "money", 1),))
    decoder = open_decoder("protobuf", {"schema_registry": registry.url, "message": "shop.Order"}, [])
    assert types_of(list(decoder.columns)) == ORDER_COLUMNS
    body, row = order_message()
    decoded = decoder.decode([None], [frame(number, body, b"\x02\x02")])
    assert decoded.rows == [row]
    third = PROTO.replace("Kind kind = 8;", "Kind kind = 8; int32 n = 9;")
    newer = registry.register("orders-value", third, "PROTOBUF", (("money.proto", "money", 1),))
    second = frame(newer, body + b"\x48\x05", b"\x02\x02")
    assert [bad.column for bad in decoder.decode([None], [second]).bad] == ["n"]
    assert types_of(decoder.message_columns([second]))["n"] == "INT"


@pytest.mark.parametrize(
    ("places", "expected"), [(b"\x00", (0,)), (b"\x02\x02", (1,)), (b"\x04\x02\x00", (1, 0)), (b"\x02\x80\x02", (128,))]
)
def test_the_frame_of_protobuf_names_a_message_by_its_place(places: bytes, expected: tuple[int, ...]) -> None:
    assert read_frame(frame(7, b"body", places)) == (expected, 5 + len(places))


@pytest.mark.parametrize(
    "bad", [b"", b"\0\0\0", b"\1\0\0\0\1\0", b"\0\0\0\0\1\x01", b"\0\0\0\0\1\x02\x01", b"\0\0\0\0\1\x04"]
)
def test_frames_that_are_broken(bad: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_frame(bad)


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "doc", "type": ["null", "string"]},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ],
}
VALUES = {"id": 1, "day": 20_484, "at": 1_769_860_800_000_000, "price": Decimal("12.30"), "doc": "d", "raw": b"\0\1"}


def test_debezium_in_avro_by_a_registry(registry: SchemaRegistryServer) -> None:
    number = registry.register("orders-value", ENVELOPE)
    decoder = open_decoder("debezium", {"schema_registry": registry.url}, [], ("id",))
    assert types_of(list(decoder.columns)) == {
        "id": "INT", "day": "DATE", "at": "TIMESTAMP(6)", "price": "DECIMAL(10, 2)", "doc": "STRING", "raw": "BYTES",
    }  # fmt: skip
    unavailable = "__debezium_unavailable_value"
    events = [
        {"before": None, "after": VALUES, "op": "c"},
        {"before": None, "after": {**VALUES, "doc": unavailable, "raw": unavailable.encode()}, "op": "u"},
        {"before": {**VALUES, "id": 3}, "after": None, "op": "d"},
    ]
    decoded = decoder.decode([None] * 3, [frame(number, avro(ENVELOPE, event)) for event in events])
    row = {**VALUES, "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 12)}
    assert decoded.bad == []
    assert decoded.rows == [row, {**row, "doc": UNSET, "raw": UNSET}]
    assert decoded.deletes == {2: {"id": 3}}


def test_debezium_in_json_with_its_schema() -> None:
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"field": "free", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
        {"field": "raw", "type": "bytes"},
        {"field": "due", "type": "int64", "name": "io.debezium.time.MicroTime"},
        {"field": "at", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {"field": "days", "type": "array", "items": {"type": "int32"}},
    ]  # fmt: skip
    schema = {"fields": [{"field": "before", "fields": fields}, {"field": "after", "fields": fields}]}
    after = {
        "id": 1,
        "price": b64encode((-1230).to_bytes(2, signed=True)).decode(),
        "free": {"scale": 3, "value": b64encode((12345).to_bytes(2)).decode()},
        "raw": b64encode(b"\0\xff").decode(),
        "due": 3_600_000_000,
        "at": "2026-01-31T12:00:00Z",
        "days": [1, 2],
    }
    message = json.dumps({"schema": schema, "payload": {"op": "c", "before": None, "after": after}}).encode()
    decoder = open_decoder("debezium", {}, [message], ("id",))
    assert types_of(list(decoder.columns)) == {
        "id": "INT", "price": "DECIMAL(10, 2)", "free": "STRING", "raw": "BYTES", "due": "TIME(6)",
        "at": "TIMESTAMP_LTZ(6)", "days": "ARRAY<INT>",
    }  # fmt: skip
    decoded = decoder.decode([None], [message])
    assert decoded.bad == []
    assert decoded.rows == [
        {"id": 1, "price": Decimal("-12.30"), "free": "12.345", "raw": b"\0\xff", "due": time(1),
         "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "days": [1, 2]}
    ]  # fmt: skip


def test_secrets_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, url = KafkaKind(), "kafka://b:9092/t"
    with pytest.raises(InvalidRequest, match=r"sasl\.jaas\.config=env:NAME"):
        kind.configure(url, {"table": "a.b", "kafka_option": ["sasl.jaas.config=org.x required password=p;"]})
    with pytest.raises(InvalidRequest, match="LAKEWARD_SCHEMA_REGISTRY_AUTH"):
        kind.configure(url, {"table": "a.b", "format": "avro", "schema_registry": "https://me:secret@host"})
    config = kind.configure(url, {"table": "a.b", "kafka_option": ["sasl.jaas.config=env:JAAS", "client.id=me"]})
    assert config["client"] == {"sasl.jaas.config": "env:JAAS", "client.id": "me"}
    with pytest.raises(InvalidRequest, match="JAAS is not set"):
        kind.open(config)
    monkeypatch.setenv("JAAS", "org.x required password=p;")
    assert kind.open(config).config["client"]["sasl.jaas.config"] == "org.x required password=p;"


DEEP = b'{"id": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
STRANGE = [DEEP, b"[" * 200_000, b"[1]", b"null", b'"x"', b"\xff", b'{"payload": []}']
CASES = [*((f, v) for f in ("json", "debezium") for v in STRANGE), ("debezium", b'{"op": "c", "after": null}')]


@pytest.mark.parametrize(("format", "value"), CASES, ids=range(len(CASES)))
def test_a_strange_message_is_bad_and_ends_nothing(format: str, value: bytes) -> None:
    decoder = load_decoder(format)([Column(name="id", type=Int64Type())], ("id",), {"format": format})
    decoded = decoder.decode([None], [value])
    assert [bad.place for bad in decoded.bad] == [0]
    assert len(decoded.rows) == 0
    with pytest.raises(InvalidRequest, match="topic orders"):
        topic_columns("orders", {"format": format}, [value])


@pytest.mark.parametrize("value", [b"null", b'{"id": 1} {"id": 2}', b'{"id": 1}\n[]', b" "])
def test_a_message_of_json_is_one_object(value: bytes) -> None:
    """Arrow reads a batch of messages at once: one must not take the place of another."""
    decoder = load_decoder("json")([Column(name="id", type=Int64Type())], (), {"format": "json"})
    decoded = decoder.decode([None] * 3, [b'{"id": 5}', value, b" "])
    assert (decoded.rows, decoded.places, [b.place for b in decoded.bad]) == ([{"id": 5}], [0], [1, 2])
    assert decoder.decode([None], [b'{"id": 7}']).rows.to_pylist() == [{"id": 7}]


def test_a_schema_that_is_none_makes_its_messages_bad(registry: SchemaRegistryServer) -> None:
    number = registry.register("other", {"type": "record", "name": "R", "fields": [{"name": "x", "type": "no.such"}]})
    registry.register("orders-value", ORDER)
    decoder = open_decoder("avro", {"schema_registry": registry.url}, [])
    (bad,) = decoder.decode([None], [frame(number, b"\0")]).bad
    assert "no.such" in bad.reason
    assert decoder.message_columns([frame(number, b"\0")]) == []


def test_a_number_without_end_in_a_frame_is_refused() -> None:
    """Each byte would have made the number longer: a megabyte of them took 18 seconds."""
    with pytest.raises(ValueError, match="more than 5 bytes"):
        read_frame(b"\0" + bytes(4) + b"\xff" * 1_000_000)
