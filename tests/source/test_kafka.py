# SPDX-License-Identifier: Apache-2.0
"""Kafka into tables, with a real broker and Spark: formats, keys, topics that change, and what cannot be decoded."""

from __future__ import annotations

import io
import itertools
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import SourceStopped
from lakeward.protocol import routes
from lakeward.source.ingest import Ingest
from lakeward.source.kafka.plugin import KafkaKind
from lakeward.source.kafka.source import JARS_VARIABLE
from tests.kit.fluss.jars import cache_folder
from tests.kit.kafka import Broker, connector_jars
from tests.kit.schemaregistry import SchemaRegistryServer, compile_protobuf, frame
from tests.kit.serverprocess import ServerProcess
from tests.source.test_kafka_formats import ENVELOPE, MONEY, ORDER, ORDER_2, PROTO, VALUES, avro, order_message

pytestmark = [
    pytest.mark.soak,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
_NUMBERS = itertools.count()
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


@dataclass
class Feed:
    broker: Broker
    client: Client
    name: str

    def send(self, rows: Any, topic: str | None = None) -> None:
        self.broker.send(topic or self.name, rows)

    def ingest(self, origin: str | None = None, **options: Any) -> Ingest:
        kind = KafkaKind()
        given = {"table": None if "to" in options else f"kafka.{self.name}", **options}
        config = kind.configure(f"kafka://{self.broker.address}/{origin or self.name}", given)
        body = {"name": self.name, "kind": "kafka", "config": dict(config), "if_not_exists": True}
        self.client.server.ask("POST", routes.SOURCES, body)
        run = Ingest(self.client, self.name, kind.open(config), lambda: False, until_idle=True)
        run.run()
        return run

    def rows(self, table: str | None = None) -> list[dict[str, Any]]:
        read = self.client.read(table or f"kafka.{self.name}").to_table().to_pylist()
        return sorted(read, key=lambda row: str(row.get("id")))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka") / "broker", cache_folder().parent / "kafka")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def _spark_settings() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    for name, value in ((JARS_VARIABLE, connector_jars()), ("SPARK_LOCAL_IP", "127.0.0.1")):
        patch.setenv(name, value)
    patch.setenv("LAKEWARD_SPARK_MASTER", "local[2]")
    yield
    patch.undo()


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    server = SchemaRegistryServer()
    yield server
    server.close()


@pytest.fixture
def feed(broker: Broker, source_server: ServerProcess, _spark_settings: None) -> Iterator[Feed]:
    with source_server.client() as client:
        yield Feed(broker, client, f"feed{next(_NUMBERS)}")


def test_json_into_a_log_table_with_headers_and_times(feed: Feed) -> None:
    feed.send((f"k{n}", json.dumps({"id": n, "name": f"n{n}"})) for n in range(300))
    feed.ingest(metadata=True)
    feed.send((f"k{n}", json.dumps({"id": n, "name": None})) for n in range(300, 400))
    run = feed.ingest(metadata=True)
    rows = feed.rows()
    assert sorted(row["id"] for row in rows) == list(range(400))
    assert {(row["_topic"], row["_partition"]) for row in rows} == {(feed.name, 0), (feed.name, 1)}
    assert len({(row["_partition"], row["_offset"]) for row in rows}) == 400
    assert (run.status.source.rows, run.status.lag.messages) == (400, 0)


def test_upserts_and_tombstones_by_key(feed: Feed) -> None:
    feed.send((str(n), json.dumps({"id": n, "n": 0})) for n in range(50))
    feed.ingest(key="id", columns="id bigint, n int")
    feed.broker.send_raw(
        feed.name,
        [(b"7", None), (b"8", b'{"id": 8, "n": 1}'), (b"8", None), (b"9", None), (b"9", b'{"id": 9, "n": 5}')],
    )
    feed.ingest(key="id", columns="id bigint, n int")
    rows = {row["id"]: row["n"] for row in feed.rows()}
    assert rows == {n: 0 for n in range(50) if n not in (7, 8, 9)} | {9: 5}


def test_debezium_envelopes_with_unavailable_values(feed: Feed) -> None:
    def envelope(op: str, before: Any, after: Any) -> str:
        return json.dumps({"payload": {"op": op, "before": before, "after": after}})

    feed.send(
        [
            ("1", envelope("r", None, {"id": 1, "n": "a", "doc": "large"})),
            ("1", envelope("u", None, {"id": 1, "n": "b", "doc": "__debezium_unavailable_value"})),
            ("2", envelope("c", None, {"id": 2, "n": "x", "doc": "d"})),
            ("2", envelope("d", {"id": 2}, None)),
            ("3", envelope("c", None, {"id": 3, "n": "z", "doc": "d"})),
        ]
    )
    feed.ingest(format="debezium", key="id")
    assert feed.rows() == [{"id": 1, "n": "b", "doc": "large"}, {"id": 3, "n": "z", "doc": "d"}]


def test_avro(feed: Feed, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("schemas")
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
    }
    (folder / "r.avsc").write_text(json.dumps(schema))

    def avro(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
        return out.getvalue()

    feed.broker.send_raw(feed.name, [(b"k", avro({"id": n, "s": None if n % 2 else "x"})) for n in range(10)])
    feed.ingest(format="avro", schema_file=str(folder / "r.avsc"))
    assert feed.rows() == [{"id": n, "s": None if n % 2 else "x"} for n in range(10)]


def test_avro_by_a_registry_follows_the_contract_of_the_table(
    feed: Feed, registry: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that a newer schema adds stops the source, is added once the table evolves, and an id that the registry
    does not have goes to the quarantine."""
    registry.login = "Basic " + b64encode(b"me:secret").decode()
    first, second = registry.register(f"{feed.name}-value", ORDER), registry.register(f"{feed.name}-value", ORDER_2)
    registry.subjects[f"{feed.name}-value"].remove(second)
    options = {"format": "avro", "schema_registry": registry.url, "key": "id"}
    feed.broker.send_raw(feed.name, [(b"1", frame(first, avro(ORDER, {"id": 1, "name": "a"})))])
    with pytest.raises(SourceStopped, match=r"refuses the credentials \(401\)"):
        feed.ingest(**options)
    monkeypatch.setenv("LAKEWARD_SCHEMA_REGISTRY_AUTH", "me:secret")
    feed.ingest(**options)
    newer = frame(second, avro(ORDER_2, {"id": 2, "name": "b", "price": 1.5}))
    feed.broker.send_raw(feed.name, [(b"2", newer), (b"1", None)])
    with pytest.raises(SourceStopped, match="column price"):
        feed.ingest(**options)
    feed.client.alter_table(f"kafka.{feed.name}", properties={"table.schema.contract": "evolve"})
    feed.ingest(**options)
    assert feed.rows() == [{"id": 2, "name": "b", "price": 1.5}]
    feed.client.alter_table(f"kafka.{feed.name}", properties={"table.schema.contract": "quarantine"})
    feed.broker.send_raw(
        feed.name, [(b"3", frame(9_999, b"x")), (b"4", frame(first, avro(ORDER, {"id": 4, "name": ""})))]
    )
    feed.ingest(**options)
    assert [row["id"] for row in feed.rows()] == [2, 4]
    kept = feed.client.server.ask("GET", routes.QUARANTINE.format(table=f"kafka.{feed.name}"))["rows"]
    assert ["/schemas/ids/9999" in row["bad"]["reason"] for row in kept] == [True]


def test_protobuf_with_a_descriptor_set_and_by_a_registry(
    feed: Feed, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    body, row = order_message()
    file = tmp_path / "orders.bin"
    file.write_bytes(compile_protobuf({"main.proto": PROTO, "money.proto": MONEY}).SerializeToString())
    feed.broker.send_raw(feed.name, [(b"1", body)])
    feed.ingest(format="protobuf", schema_file=str(file), message="shop.Order")
    assert feed.rows() == [row]
    registry.register("money", MONEY, "PROTOBUF")
    number = registry.register("orders", PROTO, "PROTOBUF", (("money.proto", "money", 1),))
    other = Feed(feed.broker, feed.client, f"{feed.name}-framed")
    other.broker.send_raw(other.name, [(b"1", frame(number, body, b"\x02\x02"))])
    other.ingest(format="protobuf", schema_registry=registry.url, message="shop.Order", key="id")
    assert other.rows() == [row]


def test_debezium_in_avro_by_a_registry(feed: Feed, registry: SchemaRegistryServer) -> None:
    number, key = registry.register(f"{feed.name}-value", ENVELOPE), registry.register(f"{feed.name}-key", KEY)

    def event(op: str, before: Any, after: Any) -> tuple[bytes, bytes]:
        row = before or after
        body = avro(ENVELOPE, {"op": op, "before": before, "after": after})
        return frame(key, avro(KEY, {"id": row["id"]})), frame(number, body)

    second = {**VALUES, "id": 2}
    changed = {**VALUES, "doc": "__debezium_unavailable_value", "raw": None}
    events = [event("c", None, VALUES), event("c", None, second), event("u", None, changed), event("d", second, None)]
    feed.broker.send_raw(feed.name, [*events, (events[3][0], None)])
    feed.ingest(format="debezium", schema_registry=registry.url, key="id")
    moments = {"day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 12)}
    assert feed.rows() == [{**VALUES, **moments, "raw": None}]


def test_a_pattern_of_topics_and_topics_that_come_later(feed: Feed) -> None:
    for part in ("a", "b"):
        feed.send([("k", '{"id": 1}')], topic=f"{feed.name}-{part}")
    feed.ingest(f"{feed.name}-.*", to=feed.name)
    feed.send([("k", '{"id": 2}')], topic=f"{feed.name}-c")
    feed.ingest(f"{feed.name}-.*", to=feed.name)
    assert [feed.rows(f"{feed.name}.{feed.name}-{part}") for part in "abc"] == [[{"id": 1}], [{"id": 1}], [{"id": 2}]]


def test_a_keyed_topic_that_gets_partitions_stops_and_goes_on_once_that_is_accepted(feed: Feed) -> None:
    options = {"key": "id", "columns": "id bigint, n int"}
    feed.send((str(n), json.dumps({"id": n, "n": 0})) for n in range(100))
    feed.ingest(**options)
    feed.broker.tool("TopicCommand", "--alter", "--topic", feed.name, "--partitions", "7")
    feed.send((str(n), json.dumps({"id": n, "n": 1})) for n in range(100))
    with pytest.raises(SourceStopped, match="new partitions"):
        feed.ingest(**options)
    assert {row["n"] for row in feed.rows()} == {0}
    command = ["ingest", feed.name, "--on-new-partitions", "continue", "--until-idle", "--server", feed.client.url]
    assert app.run(command) == 0
    assert [(row["id"], row["n"]) for row in sorted(feed.rows(), key=lambda row: row["id"])] == [
        (n, 1) for n in range(100)
    ]
    feed.send((str(n), json.dumps({"id": n, "n": 2})) for n in range(100))
    feed.ingest(**options)
    assert {row["n"] for row in feed.rows()} == {2}


def test_a_log_topic_that_gets_partitions_goes_on(feed: Feed) -> None:
    feed.send((str(n), json.dumps({"id": n})) for n in range(50))
    feed.ingest(columns="id bigint")
    feed.broker.tool("TopicCommand", "--alter", "--topic", feed.name, "--partitions", "7")
    feed.send((str(n), json.dumps({"id": n})) for n in range(50, 100))
    feed.ingest(columns="id bigint")
    assert sorted(row["id"] for row in feed.rows()) == list(range(100))


def test_a_topic_that_was_made_again_stops_the_source(feed: Feed) -> None:
    feed.send([("k", '{"id": 1}')])
    feed.ingest()
    feed.broker.tool("TopicCommand", "--delete", "--topic", feed.name)
    feed.send([("k", '{"id": 2}')])
    with pytest.raises(SourceStopped, match="was deleted and created again"):
        feed.ingest()
    feed.client.server.ask("DELETE", routes.SOURCE.format(source=feed.name))
    feed.ingest(on_recreated="continue")
    assert feed.rows() == [{"id": 1}, {"id": 2}]


def test_messages_that_do_not_fit_stop_or_go_to_the_quarantine(feed: Feed) -> None:
    feed.send([("a", '{"id": 1}'), ("a", '{"id": "one"}'), ("a", "no json"), ("a", '{"id": 2}')])
    with pytest.raises(SourceStopped, match=rf"topic {feed.name}, partition \d, offset 1"):
        feed.ingest(columns="id bigint")
    feed.client.alter_table(f"kafka.{feed.name}", properties={"table.schema.contract": "quarantine"})
    feed.ingest(columns="id bigint")
    assert feed.rows() == [{"id": 1}, {"id": 2}]
    kept = feed.client.server.ask("GET", routes.QUARANTINE.format(table=f"kafka.{feed.name}"))["rows"]
    assert [row["bad"]["number"] for row in kept] == [1, 2]


def test_starts_at_latest_and_at_an_offset(feed: Feed) -> None:
    feed.send([("same", json.dumps({"id": n})) for n in range(10)])
    feed.ingest(start="latest", columns="id bigint")
    feed.send([("same", '{"id": 10}')])
    feed.ingest(start="latest", columns="id bigint")
    assert [row["id"] for row in feed.rows()] == [10]


def test_transactions_that_are_aborted_are_not_read_and_compacted_topics_are_whole(feed: Feed) -> None:
    settings = ("cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.01")
    configs = [part for setting in settings for part in ("--config", setting)]
    feed.broker.tool("TopicCommand", "--create", "--topic", feed.name, "--partitions", "1", *configs)
    feed.broker.send_transaction(feed.name, [(b"1", b'{"id": 1, "n": 1}')], commit=True)
    feed.broker.send_transaction(feed.name, [(b"1", b'{"id": 1, "n": 99}')], commit=False)
    feed.broker.send_transaction(feed.name, [(b"2", b'{"id": 2, "n": 2}')], commit=True)
    feed.ingest(key="id", columns="id bigint, n int")
    feed.broker.send_transaction(feed.name, [(b"1", b'{"id": 1, "n": 3}')], commit=True)
    feed.ingest(key="id", columns="id bigint, n int")
    assert feed.rows() == [{"id": 1, "n": 3}, {"id": 2, "n": 2}]


def test_the_commands_of_the_page(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of docs/kafka.md as they are, but for the names of broker and topics, until everything is stored."""
    page = (Path(__file__).parents[2] / "docs/kafka.md").read_text()
    block = next(b for b in re.findall(r"```bash\n(.*?)```", page, re.S) if "lakeward ingest" in b)
    feed.send([("1", '{"id": 1, "total": 5}'), ("1", '{"id": 1, "total": 7}')], topic=f"{feed.name}-orders")
    lines = block.splitlines()
    assert len(lines) == 2
    for line in lines:
        for old, new in (
            ("broker:9092", feed.broker.address),
            ("/orders", f"/{feed.name}-orders"),
            ("/shop-", f"/{feed.name}-"),
            ("shop.orders", f"{feed.name}.first"),
            ("--to shop", f"--to {feed.name}"),
        ):
            line = line.replace(old, new)
        words = [*shlex.split(line)[1:], "--until-idle", "--json", "--server", feed.client.url]
        assert app.run(words) == 0
        assert '"rows": 2' in capsys.readouterr().out
    assert feed.rows(f"{feed.name}.first") == [{"id": 1, "total": 7}]
    raw = feed.rows(f"{feed.name}.{feed.name}-orders")
    assert [row["value"] for row in raw] == [b'{"id": 1, "total": 5}', b'{"id": 1, "total": 7}']
