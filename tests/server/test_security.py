# SPDX-License-Identifier: Apache-2.0
"""Who may call, over what: tokens and roles on both doors, TLS on both doors, and the refusal of an open address
without a token.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pyarrow.flight as flight
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lakeward.client import Client, connect
from lakeward.config import resolve
from lakeward.errors import (
    Forbidden,
    IncompatibleVersion,
    InvalidRequest,
    LakewardError,
    ServerUnavailable,
    TimedOut,
    Unauthorized,
    from_wire,
)
from lakeward.protocol.routes import FACTS, HEALTH, INFO, PROTOCOL, PROTOCOL_HEADER, READY, TABLES
from lakeward.spi import load_lake
from tests.kit.serverprocess import ServerProcess

StartServer = Callable[..., ServerProcess]
COLUMNS = "id BIGINT NOT NULL"
TOKENS = "ann:admin:top,wim:write:pen,rea:read:eye,joe:job:hammer,eve:admin:own:e.*"


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lakeward test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]),
            False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, layout, none = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(encoding, layout, none))
    return cert_file, key_file


def test_each_role_may_do_its_part_and_no_more(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEWARD_TOKEN", raising=False)
    server = start_server(settings={"server.tokens": TOKENS})
    admin, writer, reader, job = (server.client(token=secret) for secret in ("top", "pen", "eye", "hammer"))
    admin.create_table("d.t", COLUMNS)
    writer.table("d.t").append({"id": 1})
    for who in (admin, writer, reader, job):
        assert who.table("d.t").scan(0).num_rows == 1
    for who in (reader, job):
        with pytest.raises(Forbidden, match="needs write"):
            who.table("d.t").append({"id": 2})
    for who in (writer, reader, job):
        with pytest.raises(Forbidden, match="needs admin"):
            who.create_table("d.u", COLUMNS)
    for stranger in (server.client(), server.client(token="wrong"), server.client(token="")):
        with pytest.raises(Unauthorized):
            stranger.list_tables()
    facts = [client.server.ask("GET", FACTS)["hot"] for client in (admin, server.client(token="own"))]
    assert [len(hot) for hot in facts] == [1, 0], "a tenant hears of no table of another"
    info = admin.table("d.t").info
    for headers in ([], [(b"authorization", b"Bearer wrong")], [(b"authorization", b"Basic dG9wOnRvcA==")]):
        raw = flight.FlightClient(admin.info().flight_uri)
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(raw.do_action(flight.Action("list-tables", b""), flight.FlightCallOptions(headers=headers)))
        raw.close()
    assert info.path in admin.store.list_tables()


def test_the_token_comes_from_the_environment(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text("# who may\nann:admin:top\n")
    server = start_server(settings={"server.token-file": str(file)})
    monkeypatch.setenv("LAKEWARD_TOKEN", "top")
    assert server.client().list_tables() == []


def test_a_renewed_token_is_taken_up_at_every_door(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server gets new tokens, then the client's file is written anew: the same client goes on, over HTTP, over
    Flight and in the catalog, where it reads the lake."""
    monkeypatch.delenv("LAKEWARD_TOKEN", raising=False)
    secret, tokens = tmp_path / "secret", tmp_path / "tokens"
    secret.write_text("old\n")
    tokens.write_text("ann:admin:old\n")
    server = start_server(settings={"server.token-file": str(tokens), "datalake.format": "iceberg"})
    with connect(server.url, config=resolve(arguments={"client.token-file": str(secret)})) as client:
        table = client.create_table("d.t", COLUMNS)
        table.append({"id": 1})
        assert table.read().to_table().num_rows == 1
        server.stop()
        tokens.write_text("ann:admin:new\n")
        server.restart()
        for call in (client.list_tables, table.bounds, table.read):
            with pytest.raises(Unauthorized):
                call()
        secret.write_text("new\n")
        assert client.list_tables() == ["d.t"]
        table.append({"id": 2})
        assert table.read().to_table().num_rows == 2
        assert table.read(mode="lake").to_table().num_rows == 0


def test_a_token_given_by_hand_reads_the_lake_too(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEWARD_TOKEN", raising=False)
    server = start_server(settings={"server.tokens": TOKENS, "datalake.format": "iceberg"})
    server.client(token="top").create_table("d.t", COLUMNS)
    assert server.client(token="eye").read("d.t", mode="lake").to_table().num_rows == 0


def test_an_open_address_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(TimedOut, match=r"without a token is refused") as refused:
        ServerProcess(tmp_path / "data", settings={"server.host": "0.0.0.0"}).start()
    assert "Traceback" not in refused.value.state


def test_both_doors_speak_tls(start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # those come first, as the requests library has it
        monkeypatch.delenv(variable, raising=False)
    cert, key = self_signed(tmp_path)
    tls = {"server.tls.cert": str(cert), "server.tls.key": str(key)}
    server = start_server(settings={**tls, "datalake.format": "iceberg"})
    assert server.url.startswith("https://127.0.0.1:")
    client = server.client(ca=str(cert))
    table = client.create_table("d.t", COLUMNS)
    table.append({"id": 1})
    assert client.info().flight_uri.startswith("grpc+tls://")
    lake = load_lake("iceberg", client.info().lake_options)
    lake.catalog().check()  # as a union read asks it, with nothing but the client's `ca`
    assert table.scan(0).num_rows == 1
    for url in (server.url, server.url.replace("https", "http")):
        stranger = connect(url)
        stranger.server.retry_s = 0.0
        with pytest.raises(ServerUnavailable):
            stranger.list_tables()
        stranger.close()


def test_half_of_tls_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(TimedOut, match="go together"):
        ServerProcess(tmp_path / "data", settings={"server.tls.cert": "x.pem"}).start()


@pytest.fixture
def http(shared_server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=shared_server.url, timeout=120, headers={"content-type": "application/json"})


def error_of(response: httpx.Response) -> LakewardError:
    body = response.json()
    assert {"code", "message", "facts"} <= body.keys()
    assert "Traceback" not in response.text
    return from_wire(body)


def test_errors_are_typed_and_show_no_stack(http: httpx.Client) -> None:
    with http:
        for response, status in (
            (http.get(f"{TABLES}/d.none"), 404),
            (http.get(f"{TABLES}/nodot"), 400),
            (http.get("/api/v1/nothing"), 404),
            (http.put(TABLES), 405),
            (http.post(TABLES, content=b"{"), 400),
            (http.post(TABLES, content=b"\xff\xff"), 400),
            (http.post(TABLES, json=[1]), 400),
            (http.post(TABLES, json={"path": "d.t"}), 400),
            (http.post(TABLES, json={"path": "d.t", "descriptor": {"schema": 1}}), 400),
            (http.patch(f"{TABLES}/d.none", json={"properties": {"a": 1}}), 400),
        ):
            assert response.status_code == status, (response.request.method, response.request.url, response.text)
            error_of(response)


def test_versions_are_checked_and_told(http: httpx.Client) -> None:
    with http:
        assert http.get(INFO).headers[PROTOCOL_HEADER] == PROTOCOL
        assert http.get(INFO, headers={PROTOCOL_HEADER: PROTOCOL}).status_code == 200
        response = http.get(INFO, headers={PROTOCOL_HEADER: "9.0"})
        assert response.status_code == 426
        assert isinstance(error_of(response), IncompatibleVersion)
        assert isinstance(error_of(http.get(INFO, headers={PROTOCOL_HEADER: "x"})), InvalidRequest)


def test_large_bodies_are_refused_however_they_come(http: httpx.Client) -> None:
    large = b" " * (17 * 1024 * 1024)
    with http:
        assert http.post(TABLES, content=large).status_code == 413
        assert http.post(TABLES, content=iter([large])).status_code == 400
        assert http.get(HEALTH).json() == {"status": "ok"}
        assert http.get(READY).json()["ready"] is True


def test_the_api_describes_itself(http: httpx.Client) -> None:
    with http:
        paths = http.get("/openapi.json").json()["paths"]
        pages = [http.get(page).status_code for page in ("/docs", "/redoc")]
    assert {TABLES, INFO, HEALTH} <= paths.keys()
    assert pages == [404, 404], "pages that would load scripts from elsewhere"


def test_a_client_of_nobody_says_so() -> None:
    with Client("http://127.0.0.1:1") as client:
        client.server.retry_s = 0.0
        with pytest.raises(ServerUnavailable, match="is the server running"):
            client.list_tables()
