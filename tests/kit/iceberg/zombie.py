# SPDX-License-Identifier: Apache-2.0
"""A second committer in a process of its own, paused at a fault point: `python -m tests.kit.iceberg.zombie
OPTIONS`.

It reads orders as JSON lines and answers each with one: `planned`, then how its round ended. One process serves many
runs, because starting one costs more than a hundred rounds.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakeward.errors import CommitConflict, CommitUnknown, LakewardError
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import TableInfo
from lakeward_testing.faults import Fault, FaultAction, Faults
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, B1, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit import ROOT

POINTS = (
    "lake.before-row-group",
    "lake.after-file",
    "lake.before-resolve",
    "lake.before-deletes",
    "lake.before-manifests",
    "lake.before-commit",
    "lake.after-commit",
)
"""Every step of the lake's part of a round, in order."""


def script(table: TableInfo, seed: int, rounds: int) -> ScriptedLog:
    """The log after so many rounds' worth of changes: the same in every process, for the same seed."""
    log, chance = ScriptedLog(table), random.Random(seed)
    for _ in range(rounds * 12):
        bucket, number = chance.choice((B0, B1)), chance.randrange(9)
        if chance.random() < 0.25:
            log.delete(bucket, row(number))
        else:
            log.upsert(bucket, row(number, f"change {chance.randrange(10_000)}"))
    return log


def write_round(lake: IcebergLakeStorage, log: ScriptedLog) -> LakeRound:
    return LakeRound.plan(lake, log)


def finish_round(lake_round: LakeRound) -> str:
    """Writes and commits a planned round as a driver does, and says how it ended: won or lost."""
    try:
        lake_round.run()
    except CommitConflict as conflict:
        if lake_round.committer.find(lake_round.round_id) is not None:
            return "won"
        return "lost" if conflict.lost else f"foreign: {conflict}"
    except CommitUnknown:
        return "won" if lake_round.committer.find(lake_round.round_id) is not None else "unknown"
    except LakewardError as error:
        return f"{error.code}: {error}"
    return "won"


def main(options: Mapping[str, str]) -> None:
    lake = load(options)
    for line in sys.stdin:
        order = json.loads(line)
        log = script(TableInfo.from_json(order["table"]), order["seed"], order["rounds"])
        lake_round = write_round(lake, log)
        _say(
            {
                "said": "planned",
                "round": lake_round.round_id,
                "token": lake_round.base.token,
                "prefix": lake_round.committer.prefix(lake_round.round_id),
            }
        )
        with Faults(Fault(point=order["point"], action=FaultAction.PAUSE, file=order["file"])):
            _say({"said": "ended", "how": finish_round(lake_round)})


def _say(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class Zombie:
    """The test's side of that process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def order(self, **order: Any) -> dict[str, Any]:
        """Starts a round there; it is planned when this returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.hear("planned")

    def hear(self, said: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        words: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"said": "nothing"}')
        assert words["said"] == said, words
        return words


@contextmanager
def zombie_process(options: Mapping[str, str]) -> Iterator[Zombie]:
    command = [sys.executable, "-m", "tests.kit.iceberg.zombie", json.dumps(dict(options))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield Zombie(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(120)
        assert process.stdout is not None
        process.stdout.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
