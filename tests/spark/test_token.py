# SPDX-License-Identifier: Apache-2.0
"""A job that shows its token at all doors: heartbeats over HTTP, reads over Flight in Python workers, commits in the
catalog.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.tiering.job.arguments import main
from lakeward_testing.waiting import wait_until
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


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--token-file", str(tmp_path / "nothing")]) == 1
    told = capsys.readouterr().err
    assert "client.token-file" in told
    assert str(tmp_path / "nothing") in told
