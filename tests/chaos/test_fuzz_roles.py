# SPDX-License-Identifier: Apache-2.0
"""Every HTTP route, every Flight call and the REST catalog, with the token of each role and with none: no failure of
the server's own, nobody gets what the role does not give, and neither memory nor descriptors grow.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from lakeward.errors import Forbidden, LakewardError, RemoteError
from lakeward.hot.embedded.remote.failure import from_flight
from lakeward.hot.embedded.serve.actions import ACTIONS
from lakeward.model import TableInfo
from lakeward.protocol.flight import PutKind, Read
from tests.chaos.test_fuzz import QUICK, TABLE, document, is_up, json_values
from tests.kit.changedjson import changed, places_in
from tests.kit.serverprocess import ServerProcess

ROLES = {"read": "r", "write": "w", "job": "j", "admin": "a", "some tables": "s", "nobody": "wrong"}
TOKENS = "r:read:r,w:write:w,j:job:j,a:admin:a,s:admin:s:fuzz.*"
CATALOG = [
    ("GET", "config"),
    ("GET", "namespaces"),
    ("POST", "namespaces"),
    ("GET", "namespaces/{}"),
    ("DELETE", "namespaces/{}"),
    ("POST", "namespaces/{}/properties"),
    ("GET", "namespaces/{}/tables"),
    ("POST", "namespaces/{}/tables"),
    ("POST", "namespaces/{}/register"),
    ("GET", "namespaces/{}/tables/{}"),
    ("POST", "namespaces/{}/tables/{}"),
    ("DELETE", "namespaces/{}/tables/{}"),
    ("POST", "tables/rename"),
]


EXAMPLES = [150, pytest.param(5_000, marks=pytest.mark.soak)]
HIDDEN = "hr.pay"
"""Not for the token of some tables."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(
        tmp_path_factory.mktemp("guarded") / "data",
        settings={"server.tokens": TOKENS, "datalake.format": "iceberg", "coordinator.tier-now.limit": "1 s"},
    )
    made.start()
    for name in (TABLE, HIDDEN):
        make_table(made, name)
    yield made
    made.close()


def make_table(server: ServerProcess, name: str) -> TableInfo:
    """Unless it is there; a call before may have dropped it."""
    columns = "id BIGINT NOT NULL, name STRING"
    return server.client(token="a").create_table(name, columns, primary_key="id", if_not_exists=True).info


def held(server: ServerProcess) -> tuple[int, int]:
    """Memory in MB, and descriptors."""
    assert server.process is not None
    found = psutil.Process(server.process.pid)
    return found.memory_info().rss >> 20, found.num_fds()


@contextmanager
def growing_nowhere(server: ServerProcess) -> Iterator[Callable[[], None]]:
    """Around many calls; what is yielded is called after each, as the first may load code."""
    before: list[tuple[int, int]] = []
    yield lambda: None if before else before.append(held(server))
    assert is_up(server)
    memory, files = held(server)
    assert memory < before[0][0] + 100
    assert files < before[0][1] + 40


@pytest.mark.parametrize("examples", EXAMPLES)
def test_every_route_with_the_token_of_every_role(guarded: ServerProcess, examples: int) -> None:
    """No 500, nobody is let in without a token, and nothing grows."""
    paths = [(m.upper(), p) for p, item in document(guarded)["paths"].items() for m in item if "tier-now" not in p]
    names = st.sampled_from([TABLE, "a.b", "x", "..", "%2e%2e%2f", "a" * 300, "0", "é"])
    bodies = st.one_of(
        json_values.map(lambda v: json.dumps(v).encode()), st.sampled_from([b"[" * 50_000, b"9" * 9_000])
    )
    places = st.one_of(st.sampled_from(paths), st.sampled_from([(m, f"/iceberg/v1/{p}") for m, p in CATALOG]))
    broken: list[Any] = []
    with (
        growing_nowhere(guarded) as settled,
        httpx.Client(base_url=guarded.url, timeout=120, headers={"content-type": "application/json"}) as client,
    ):

        @seed(5)
        @settings(QUICK, max_examples=examples)
        @given(places, st.sampled_from(sorted(ROLES)), names, bodies)
        def send(place: tuple[str, str], role: str, name: str, body: bytes) -> None:
            method, path = place[0], re.sub(r"\{[^}]*\}", quote(name), place[1])
            assume("/.." not in path and "/./" not in path)  # the client would ask for another path
            headers = {"authorization": f"Bearer {ROLES[role]}"}
            answer = client.request(method, path, content=None if method == "GET" else body, headers=headers)
            is_guarded = path.startswith(("/api/", "/iceberg/", "/metrics"))
            if answer.status_code == 500 or (role == "nobody" and is_guarded and answer.status_code != 401):
                broken.append((method, path, role, body[:100], answer.status_code, answer.text[:300]))
            settled()

        send()
    assert broken == []


SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}]}
BY_N = {"source-id": 1, "field-id": 1000, "name": "n", "transform": "identity"}
CREATE = {
    "name": "made",
    "schema": SCHEMA,
    "location": None,
    "partition-spec": {
        "spec-id": 0,
        "fields": [{"source-id": 1, "field-id": 1000, "name": "n", "transform": "identity"}],
    },
    "write-order": {"order-id": 0, "fields": []},
    "stage-create": False,
    "properties": {"a": "b"},
}
COMMIT = {
    "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}],
    "updates": [
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 9},
        {"action": "set-current-schema", "schema-id": -1},
    ],
}
MESSAGES = [
    ("namespaces/fuzz/tables", CREATE),
    ("namespaces/fuzz/tables/t", COMMIT),
    ("namespaces", {"namespace": ["made"], "properties": {"location": "file:///elsewhere"}}),
    ("namespaces/fuzz/properties", {"removals": ["a"], "updates": {"b": "c"}}),
    ("namespaces/fuzz/register", {"name": "r", "metadata-location": "file:///etc/passwd"}),
    (
        "tables/rename",
        {"source": {"namespace": ["fuzz"], "name": "no"}, "destination": {"namespace": ["x"], "name": "y"}},
    ),
    ("namespaces/fuzz/tables/t/metrics", {"report-type": "scan-report"}),
]


@st.composite
def nearly_right(draw: st.DrawFn) -> tuple[str, bytes]:
    path, body = draw(st.sampled_from(MESSAGES))
    where = draw(st.sampled_from(list(places_in(body))))
    value = draw(st.one_of(json_values, st.sampled_from([10**30, -1, "\x00", "../../x", "a" * 5_000, 1e308])))
    return path, json.dumps(changed(body, where, value)).encode()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_the_catalog_with_messages_that_are_nearly_right(guarded: ServerProcess, examples: int) -> None:
    broken: list[Any] = []
    with (
        growing_nowhere(guarded) as settled,
        httpx.Client(base_url=guarded.url, timeout=120, headers={"content-type": "application/json"}) as client,
    ):

        @seed(6)
        @settings(QUICK, max_examples=examples)
        @given(nearly_right(), st.sampled_from(sorted(ROLES)))
        def send(message: tuple[str, bytes], role: str) -> None:
            path, body = message
            headers = {"authorization": f"Bearer {ROLES[role]}"}
            answer = client.post(f"/iceberg/v1/{path}", content=body, headers=headers)
            refused = {"nobody": 401, "write": 403, "read": 403}.get(role, 0) if "metrics" not in path else 0
            if answer.status_code == 500 or (refused and answer.status_code != refused):
                broken.append((path, role, body[:300], answer.status_code, answer.text[:300]))
            settled()

        send()
    assert broken == []


def flight_options(role: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {ROLES[role]}".encode())], timeout=120)


STRANGE = st.one_of(
    json_values, st.sampled_from([-1, 2**31, 2**63, 10**30, "../x", "a" * 5_000, "99999999999", HIDDEN])
)
KEYS = base64.b64encode(b"\xff\xff\xff\xff\x10\0\0\0" + b"\x7f" * 64).decode()


def known(info: TableInfo) -> dict[str, Any]:
    return {"table": str(info.path), "table_id": info.table_id, "schema_id": 1, "bucket": "0"}


def tickets(info: TableInfo) -> list[dict[str, Any]]:
    """A right one of each kind, but for the keys of a lookup."""
    more: dict[str, Any] = {"width": 2, "columns": None, "offsets": {}, "wait_ms": 0, "snapshot_id": "x", "keys": KEYS}
    return [{**known(info), **more, "kind": str(kind), "range": [0, 0], "log_offset": 0} for kind in Read]


def commands(info: TableInfo) -> list[dict[str, Any]]:
    return [{**known(info), "kind": str(kind), "writer": 7, "columns": None} for kind in PutKind]


def actions(info: TableInfo) -> list[dict[str, Any]]:
    return [{**known(info), "holder": "h", "at_ms": 0}]


@st.composite
def nearly(draw: st.DrawFn, right: list[dict[str, Any]]) -> dict[str, Any]:
    """One of them, as it is or with one thing in it replaced."""
    message = draw(st.sampled_from(right))
    where = draw(st.sampled_from([None, *(p for p in places_in(message) if p)]))
    made: dict[str, Any] = message if where is None else changed(message, where, draw(STRANGE))
    return made


@pytest.mark.parametrize("examples", EXAMPLES)
def test_every_flight_call_with_the_token_of_every_role(guarded: ServerProcess, examples: int) -> None:
    location = guarded.client(token="a").info().flight_uri.replace("grpc://", "grpc+tcp://")
    infos = [make_table(guarded, name) for name in (TABLE, HIDDEN)]
    kinds = st.sampled_from([*(str(a) for a in ACTIONS), "drop-everything", "\x00", "x" * 5_000])
    wrong: list[Any] = []
    with growing_nowhere(guarded) as settled, flight.connect(location) as client:

        def attempt(role: str, table: Any, what: Any, call: Callable[[], Any]) -> None:
            try:
                call()
                error: LakewardError | None = None
            except (pa.ArrowException, flight.FlightError, OSError, KeyError) as caught:
                error = from_flight(caught, "here")
            failed = isinstance(error, RemoteError) and "the server failed on" in str(error)
            let_in = role == "nobody" and error is None
            shown = role == "some tables" and table == HIDDEN and error is None
            if failed or let_in or shown:
                wrong.append((role, what, str(error)[:300]))
            settled()

        @seed(7)
        @settings(QUICK, max_examples=examples)
        @given(
            st.sampled_from(sorted(ROLES)),
            kinds,
            *(nearly([m for info in infos for m in right(info)]) for right in (actions, tickets, commands)),
        )
        def hurt(role: str, kind: str, body: Any, ticket: Any, command: Any) -> None:
            options = flight_options(role)
            action = flight.Action(kind, json.dumps(body).encode())
            attempt(role, body.get("table"), (kind, body), lambda: list(client.do_action(action, options)))
            raw = flight.Ticket(json.dumps(ticket).encode())
            attempt(role, ticket.get("table"), ticket, lambda: client.do_get(raw, options).read_all())
            attempt(role, command.get("table"), command, lambda: put(client, json.dumps(command).encode(), options))

        hurt()
    assert wrong == []


def test_writing_over_flight_needs_the_role(guarded: ServerProcess) -> None:
    location = guarded.client(token="a").info().flight_uri.replace("grpc://", "grpc+tcp://")
    info = make_table(guarded, TABLE)
    command = {"kind": "upsert", "table": TABLE, "table_id": info.table_id, "schema_id": 1}
    with flight.connect(location) as client:
        for role in ("read", "job"):
            with pytest.raises(flight.FlightUnauthorizedError) as refused:
                put(client, json.dumps(command).encode(), flight_options(role))
            assert isinstance(from_flight(refused.value, "here"), Forbidden)


def put(client: flight.FlightClient, command: bytes, options: flight.FlightCallOptions) -> None:
    rows = pa.record_batch({"id": pa.array([1], pa.int64()), "name": pa.array(["x"])})
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), rows.schema, options)
    with writer:
        writer.write_with_metadata(rows, b'{"bucket": "0", "sequence": 0}')
        writer.done_writing()
        while reader.read() is not None:
            continue
