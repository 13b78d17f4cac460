# SPDX-License-Identifier: Apache-2.0
"""Malformed HTTP, Flight and configuration input: never a 500, never down.

HTTP is fuzzed from the server's own OpenAPI document; Flight's tickets, commands and actions, and option values, by
hypothesis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.schemas import OpenApiSchema

from lakeward.config import Config
from lakeward.config.options import ALL
from lakeward.errors import InvalidConfig
from tests.kit.serverprocess import ServerProcess

QUICK = settings(
    max_examples=60,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
PER_OPERATION = settings(QUICK, max_examples=8)
TABLE = "fuzz.t"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(
        tmp_path_factory.mktemp("fuzz") / "data",
        settings={"datalake.format": "iceberg", "coordinator.tier-now.limit": "1 s"},
    )
    made.start()
    made.client().create_table(TABLE, "id BIGINT, name STRING")
    yield made
    made.close()


def is_up(server: ServerProcess) -> bool:
    assert server.process is not None
    return server.process.poll() is None and httpx.get(f"{server.url}/healthz", timeout=120).status_code == 200


def document(server: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/openapi.json", timeout=120).json()
    return found


def test_every_operation_of_the_openapi_document(server: ServerProcess) -> None:
    schema: OpenApiSchema = schemathesis.openapi.from_dict(document(server))
    tried, broken = 0, []
    with httpx.Client(base_url=server.url, timeout=120) as client:
        for result in schema.get_all_operations():
            operation = result.ok()

            @seed(1)
            @PER_OPERATION
            @given(case=operation.as_strategy())
            def call(case: Any) -> None:
                nonlocal tried
                tried += 1
                sent = case.as_transport_kwargs(base_url=server.url)
                answer = client.request(
                    sent["method"],
                    sent["url"],
                    params=sent.get("params"),
                    headers={k: v for k, v in (sent.get("headers") or {}).items() if v.isascii() and v.isprintable()},
                    cookies=None,
                    json=sent.get("json"),
                )
                if answer.status_code == 500:
                    broken.append((case.method, str(answer.url)[:200], sent.get("json"), answer.text[:300]))

            call()
    assert tried > 100
    assert broken == []
    assert is_up(server)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def test_bodies_that_are_no_messages(server: ServerProcess) -> None:
    """Every POST and PUT of the document, with JSON that is anything, and with what is no JSON at all."""
    paths = [(m, p) for p, item in document(server)["paths"].items() for m in item if m in ("post", "put")]
    broken: list[Any] = []
    with httpx.Client(base_url=server.url, timeout=120) as client:

        @seed(2)
        @settings(QUICK, max_examples=120)
        @given(
            st.sampled_from(paths), st.one_of(json_values.map(lambda v: json.dumps(v).encode()), st.binary(max_size=40))
        )
        def send(where: tuple[str, str], body: bytes) -> None:
            method, path = where
            for name in ("table", "partition", "round_id", "table_id", "lease_id", "namespace", "job"):
                path = path.replace("{" + name + "}", TABLE if name == "table" else "x")
            answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
            if answer.status_code == 500:
                broken.append((method, path, body, answer.text[:300]))

        send()
    assert broken == []
    assert is_up(server)


def test_flight_tickets_commands_and_actions(server: ServerProcess) -> None:
    location = server.client().info().flight_uri.replace("grpc://", "grpc+tcp://")
    wrong: list[str] = []
    with flight.connect(location) as client:

        def attempt(call: Any) -> None:
            try:
                call()
            except (pa.ArrowException, flight.FlightError, OSError, KeyError) as error:
                # Anything but a typed error of ours is the server's own failure, told as `internal`.
                if "the server failed on" in str(error):
                    wrong.append(str(error)[:300])

        tickets = st.one_of(st.binary(max_size=60), json_values.map(lambda v: json.dumps(v).encode()), _tickets())

        @seed(3)
        @QUICK
        @given(tickets, st.text(max_size=12))
        def hurt(ticket: bytes, kind: str) -> None:
            attempt(lambda: client.do_get(flight.Ticket(ticket)).read_all())
            attempt(lambda: list(client.do_action(flight.Action(kind, ticket))))
            attempt(lambda: _put(client, ticket))

        hurt()
    assert wrong == []
    assert is_up(server)


def _tickets() -> st.SearchStrategy[bytes]:
    """Nearly right ones."""
    body = st.fixed_dictionaries(
        {
            "table_id": st.text(max_size=5),
            "path": st.sampled_from([TABLE, "a.b", ""]),
            "partition": st.text(max_size=3),
            "bucket": st.integers(-3, 2**40),
            "start": st.integers(-5, 2**70),
            "stop": st.integers(-5, 2**70),
        }
    )
    return body.map(lambda b: json.dumps(b).encode())


def _put(client: flight.FlightClient, command: bytes) -> None:
    rows = pa.record_batch({"id": [1]})
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), rows.schema)
    with writer:
        writer.write_with_metadata(rows, command)
        writer.done_writing()
        while reader.read() is not None:
            continue


@seed(4)
@settings(QUICK, max_examples=400)
@given(
    st.sampled_from(sorted(ALL)), st.one_of(st.text(max_size=12), st.integers(), st.floats(), st.none(), st.booleans())
)
def test_option_values_are_taken_or_refused_in_words(key: str, value: object) -> None:
    refused = None
    try:
        Config().with_arguments({key: value}).get(ALL[key])
    except InvalidConfig as error:
        refused = str(error)
    assert refused is None or key in refused
