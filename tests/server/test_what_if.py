# SPDX-License-Identifier: Apache-2.0
"""`lakeward what-if` on a server whose rounds it replays."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakeward.cli.app import run
from tests.spark.processes import Job, Server, tier_now


def test_what_if_replays_rounds_and_names_the_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        server = Server(tmp_path / "server")
        stack.callback(server.stop)
        job = Job(server, "threads", spark=False)
        stack.callback(job.kill)
        client = stack.enter_context(server.connect())
        tables = [client.create_table(f"d.t{n}", "id BIGINT", freshness="1 h") for n in range(2)]
        for number in range(3):
            for table in tables:
                table.append([{"id": number}])
                tier_now(client, table)

        def ask(*arguments: str) -> tuple[int, str]:
            code = run(["what-if", "--server", server.url, *arguments])
            shown = capsys.readouterr()
            assert not shown.err, shown.err
            return code, shown.out

        code, text = ask("--json")
        answer = json.loads(text)
        assert (code, answer["feasible"], len(answer["rows"])) == (0, True, 2)
        code, text = ask("--tables", "+30", "--freshness", "10s", "--round", "2s", "--slots", "1")
        assert code == 1
        assert "new-1" in text
        assert "simulated: " in text
        code, text = ask("--tables", "+30", "--freshness", "10s", "--round", "2s", "--slots", "30", "--json")
        assert (code, json.loads(text)["feasible"]) == (0, True)
