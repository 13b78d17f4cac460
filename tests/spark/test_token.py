# SPDX-License-Identifier: Apache-2.0
"""A job that shows its token at all doors: heartbeats over HTTP, reads over Flight in Python workers, commits in the
catalog.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from lakeward.tiering.job.arguments import main
from lakeward_testing.waiting import wait_until
from tests.kit.issuer import LocalIssuer
from tests.spark.processes import Process, Server, check_exactly_once, tier_now

TOKENS = "ann:admin:top,otto:job:hammer"


def start_job(server: Server, token_file: Path) -> Process:
    """With a token in its environment that the server does not know: the file named as argument comes first."""
    arguments = [
        "-m",
        "lakeward.tiering",
        "--server",
        server.url,
        "--name",
        "known",
        "--slots",
        "1",
        "--token-file",
        str(token_file),
    ]
    environment = {"LAKEWARD_TIERING__HEARTBEAT__INTERVAL": "200 ms", "LAKEWARD_TOKEN": "old"}
    return Process(arguments, server.folder / "job.log", environment)


@pytest.mark.soak
def test_a_job_takes_its_token_from_a_file_and_a_new_one_when_it_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWARD_TOKEN", "top")
    secret = tmp_path / "secret"
    secret.write_text("hammer\n")
    server = Server(tmp_path / "server", {"server.tokens": TOKENS})
    job = start_job(server, secret)
    try:
        with server.connect() as client:
            table = client.create_table("d.t", "id BIGINT", freshness="1 h")
            table.append([{"id": n} for n in range(100)])
            tier_now(client, table)
            assert check_exactly_once(client, table) == 100
            server.stop()
            server.settings["server.tokens"] = TOKENS.replace("hammer", "tongs")
            server.start()
            wait_until(lambda: "no valid token" in job.text(), what="a refusal of the old token", state=job.text)
            secret.write_text("tongs\n")
            table.append([{"id": n} for n in range(100, 150)])
            tier_now(client, table)
            assert check_exactly_once(client, table) == 150, (
                "heartbeats, reads in workers and commits go on with the new one"
            )
            assert "hammer" not in job.text()
            assert "tongs" not in job.text()
    finally:
        job.kill()
        server.stop()


@pytest.mark.soak
def test_tokens_of_an_issuer_expire_between_and_within_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token lives 3 s, and the job fetches the next one itself: hand-outs, reads, commits and reports go on."""
    monkeypatch.setenv("LAKEWARD_TOKEN", "top")
    secret = tmp_path / "secret"
    secret.write_text("pass\n")
    with LocalIssuer() as issuer, ExitStack() as stack:
        issuer.clients["etl"], issuer.life_s = ("pass", {"groups": ["jobs"]}), 3.0
        settings = {
            "server.tokens": "ann:admin:top",
            "server.oidc.issuer": issuer.url,
            "server.oidc.audience": "lakeward",
            "server.oidc.rules": "groups=jobs:job",
            "server.oidc.skew": "0 s",
        }
        server = Server(tmp_path / "server", settings)
        stack.callback(server.stop)
        environment = {
            "LAKEWARD_TIERING__HEARTBEAT__INTERVAL": "200 ms",
            "LAKEWARD_CLIENT__OAUTH2__URL": f"{issuer.url}/token",
            "LAKEWARD_CLIENT__OAUTH2__ID": "etl",
            "LAKEWARD_CLIENT__OAUTH2__SECRET_FILE": str(secret),
        }
        arguments = ["-m", "lakeward.tiering", "--server", server.url, "--name", "etl", "--slots", "1"]
        monkeypatch.delenv("LAKEWARD_TOKEN")
        job = Process(arguments, tmp_path / "job.log", environment)
        stack.callback(job.kill)
        monkeypatch.setenv("LAKEWARD_TOKEN", "top")
        with server.connect() as client:
            table, rows = client.create_table("d.t", "id BIGINT", freshness="1 h"), 0
            while issuer.logins < 8 or rows < 400:
                table.append([{"id": n} for n in range(rows, rows + 100)])
                rows += 100
                tier_now(client, table)
            assert check_exactly_once(client, table) == rows
        assert "failed" not in job.text(), job.text()


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--token-file", str(tmp_path / "nothing")]) == 1
    told = capsys.readouterr().err
    assert "client.token-file" in told
    assert str(tmp_path / "nothing") in told
