# SPDX-License-Identifier: Apache-2.0
"""Conditions of `lakeward doctor` that take time, room or another machine, made on one real server: a process on a
small disk, on an open address, whose wall clock the test moves, with a second lake in another server's catalog.

Not made here: tokens missing on an open address (a server refuses to start so: tests/server/test_security.py). The
limit of a control group is a number in a file that a mount namespace shows to a server of its own: groups themselves
are the machine's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeward
from lakeward.client import Client, connect
from lakeward.protocol.routes import HEARTBEAT, JOBS, PROTOCOL, PROTOCOL_MAJOR, PROTOCOL_MINOR
from lakeward_testing.chaos.switches import CLOCK, Switches
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, Process, tier_now

pytestmark = pytest.mark.soak

TOKEN = "a-secret-of-the-doctor"
MINUTE, DAY = 60_000, 86_400_000
Finding = tuple[str, str, str]


class Lab:
    """The server, and what a job of tests.spark.processes asks of one."""

    job: Job

    def __init__(self, folder: Path, far: ServerProcess) -> None:
        self.folder, self.far = folder, far
        self.switches = Switches(folder / "switches")
        port, ready = free_port(), folder / "ready"
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "server.data-dir": str(folder / "data"),
            "server.host": "0.0.0.0",
            "server.port": str(port),
            "server.flight-port": str(free_port()),
            "server.tokens": f"boss:admin:{TOKEN}",
            "server.disk.reserve": "1 mb",
            "datalake.format": "iceberg",
            "lakes.far.format": "iceberg",
            "lakes.far.type": "rest",
            "lakes.far.uri": f"{far.url}/iceberg",
            "coordinator.tick": "50 ms",
            "coordinator.maintenance.interval": "200 ms",
            "coordinator.heartbeat.interval": "500 ms",
            "coordinator.lease.duration": "3 s",
            "max.partition.num": "2000",
        }
        given = [str(self.switches.folder), str(ready), *(f"{k}={v}" for k, v in settings.items())]
        self.process = Process(["-m", "lakeward_testing.chaos.serverprocess", *given], folder / "server.log", {})
        wait_until(ready.exists, what="the server's start", state=self.process.text)
        self.client: Client = connect(self.url, token=TOKEN)

    def close(self) -> None:
        self.client.close()
        self.process.kill()

    def pass_time(self, ms: int) -> None:
        self.switches.turn(CLOCK, str(int(self.switches.read(CLOCK) or 0) + ms))

    def follow(self, check: str, about: str, choice: int = 0) -> None:
        """Runs the command that the doctor recommends, or another one that it names. One that changes a table must be
        the end of the finding, but for compactions, which take their time."""
        (finding,) = [f for f in self.findings() if (f["check"], f["about"]) == (check, about)]
        pattern = r"lakeward (table alter \S+ --set (?:'[^']+'|[^\s,]+)|table drop [\w.]+|[a-z-]+ [\w.]+)"
        commands = re.findall(pattern, finding["mend"])
        command = [*shlex.split(commands[choice]), *(["--yes"] if "drop" in commands[choice] else [])]
        environment = {**os.environ, "LAKEWARD_TOKEN": TOKEN, "LAKEWARD_SERVER": self.url}
        subprocess.run([sys.executable, "-m", "lakeward.cli", *command], env=environment, check=True, timeout=300)
        if command[0] == "table" and check != "files":
            assert (check, about, finding["figure"]) not in self.examine()

    def findings(
        self, *arguments: str, python_path: Path | None = None, url: str | None = None
    ) -> list[dict[str, str]]:
        environment = {**os.environ, "LAKEWARD_TOKEN": TOKEN}
        environment |= {"PYTHONPATH": str(python_path)} if python_path else {}
        command = [sys.executable, "-m", "lakeward.cli", "doctor", "--json", "--server", url or self.url, *arguments]
        told = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120)
        assert told.returncode in (0, 1), told.stderr
        found: list[dict[str, str]] = json.loads(told.stdout)["findings"]
        return found

    def examine(self, *arguments: str, python_path: Path | None = None, url: str | None = None) -> set[Finding]:
        found = self.findings(*arguments, python_path=python_path, url=url)
        return {(f["check"], f["about"], f["figure"]) for f in found}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=768m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    with ExitStack() as ends:
        ends.callback(subprocess.run, ["umount", str(folder)], check=True)
        far = ServerProcess(tmp_path_factory.mktemp("far") / "data", {"datalake.format": "iceberg"})
        ends.callback(far.close)
        lab = Lab(folder, far.start())
        ends.callback(lab.close)
        lab.job = job = Job(lab, "hand", spark=False, slots=1, settings={"LAKEWARD_TOKEN": TOKEN})
        ends.callback(job.kill)
        wait_until(
            lambda: any(j["live"] for j in lab.client.server.ask("GET", JOBS)["jobs"]),
            what="the job",
            state=job.text,
        )
        yield lab


def find(found: set[Finding], check: str, about: str, words: str) -> bool:
    return any((c, a) == (check, about) and words in figure for c, a, figure in found)


def test_an_open_address_and_another_version_are_found(lab: Lab, tmp_path: Path) -> None:
    found = lab.examine()
    assert found == {("security", "server", "no TLS on an open address")}
    by_name = lab.url.replace("127.0.0.1", "0.0.0.0")
    assert lab.examine(url=by_name) - found == {("security", "server", f"a token goes to {by_name}")}

    beat = {"job": "other", "instance": "o-1", "slots": 1}
    lab.client.server.ask("POST", HEARTBEAT, beat)
    assert lab.examine() - found == {("jobs", "server", "2 jobs, none of them expected by name")}
    lab.client.server.ask("POST", HEARTBEAT, {**beat, "leaving": True})

    source = Path(lakeward.__file__).parent
    shutil.copytree(source, tmp_path / "lakeward", ignore=shutil.ignore_patterns("__pycache__"))
    change = _changer(tmp_path / "lakeward")
    change("__init__.py", f'__version__ = "{lakeward.__version__}"', '__version__ = "0.0.9"')
    told = lab.examine(python_path=tmp_path) - found
    assert ("versions", "server", f"lakeward 0.0.9 here, {lakeward.__version__} there") in told
    change("protocol/routes.py", f"PROTOCOL_MINOR = {PROTOCOL_MINOR}", f"PROTOCOL_MINOR = {PROTOCOL_MINOR + 1}")
    newer = f"{PROTOCOL_MAJOR}.{PROTOCOL_MINOR + 1}"
    assert ("versions", "server", f"protocol {newer} here, {PROTOCOL} there") in lab.examine(python_path=tmp_path)


def _changer(package: Path) -> Callable[[str, str, str], None]:
    def change(file: str, old: str, new: str) -> None:
        text = (package / file).read_text()
        assert old in text
        (package / file).write_text(text.replace(old, new))

    return change


def test_a_tiny_table_too_few_buckets_and_too_many_files_are_found(lab: Lab) -> None:
    client = lab.client
    tiny = client.create_table("doc.tiny", "id bigint", freshness="1 min", buckets=1)
    for number in range(20):
        tiny.append([{"id": number}])
        tier_now(client, tiny)
    assert ("tiny", "doc.tiny", "20 rows, 20 in the last 20 rounds") in lab.examine()
    lab.follow("tiny", "doc.tiny")
    client.drop_table("doc.tiny")

    few = client.create_table("doc.few", "id bigint", freshness="10 min", buckets=1)
    for rows in (1, 1, 5_000_001):
        few.append(pa.table({"id": pa.array(range(rows), pa.int64())}))
        tier_now(client, few)
    assert ("buckets", "doc.few", "5,000,001 rows a bucket in one round, 1 bucket") in lab.examine()
    client.drop_table("doc.few")

    off = {"table.datalake.auto-compaction": "false"}
    many = client.create_table(
        "doc.many", "p string not null, id bigint", partition_by="p", buckets=1, freshness="10 min", properties=off
    )
    for _ in range(4):
        many.append([{"p": f"p{number}", "id": number} for number in range(1_260)])
        tier_now(client, many)
    assert find(lab.examine(), "files", "doc.many", "5,040 files, 0 of them to merge")
    lab.follow("files", "doc.many")
    lab.follow("files", "doc.many")  # compaction is on now, and this says what it has to do
    wait_until(lambda: not find(lab.examine(), "files", "doc.many", ""), poll_s=2, limit_s=300, what="fewer files")
    client.drop_table("doc.many")


def test_what_time_brings_is_found(lab: Lab) -> None:
    client = lab.client
    plain: dict[str, Any] = {"table.datalake.enabled": "false"}
    logs = client.create_table("doc.logs", "id bigint, words string", properties=plain)
    for turn in range(4):
        logs.append(pa.table({"id": range(20_000), "words": [f"{turn}-{i}" * 40 for i in range(20_000)]}))
    alone = {"table.datalake.pool": "nobody", "table.log.ttl": "10 min"}
    client.create_table("doc.behind", "id bigint", freshness="1 min", properties=alone).append([{"id": 1}])
    lab.pass_time(11 * MINUTE)
    found = lab.examine()
    assert find(found, "retention", "doc.behind", "the lake is 11 min behind, its log lives 10 min; ")
    lab.follow("retention", "doc.behind")
    client.drop_table("doc.behind")
    assert find(found, "disk", "server", " days left: "), found
    assert find(found, "clocks", "server", " s between this machine's clock and the server's")

    lab.pass_time(31 * DAY)
    assert find(lab.examine(), "unused", "doc.logs", "no row since ")
    logs.append([{"id": 1, "words": "one"}])
    assert ("unused", "doc.logs", "rows come, and nobody has read one for 30 days") in lab.examine()
    lab.follow("unused", "doc.logs")
    logs.scan(next(iter(logs.bounds())), 0)
    kept = client.create_table("doc.kept", "id bigint", freshness="10 min")
    kept.append([{"id": 1}])
    found = lab.examine()
    assert ("unused", "doc.kept", "rounds run, and nobody has read it through this server for 30 days") in found
    lab.follow("unused", "doc.kept")
    lab.follow("unused", "doc.kept", choice=1)
    client.drop_table("doc.logs")
    lab.switches.turn(CLOCK, None)


def test_a_disk_that_is_nearly_full_is_found(lab: Lab) -> None:
    free = shutil.disk_usage(lab.folder).free
    filler = lab.folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - 20_000_000)
    found = lab.examine()
    filler.unlink()
    assert find(found, "disk", "server", " free of ")


def test_memory_near_its_limit_is_found(lab: Lab, tmp_path: Path) -> None:
    groups, ready = "/sys/fs/cgroup", tmp_path / "ready"
    limited = tmp_path / "limited"
    limited.write_text(
        f"""#!/bin/sh
[ "$IN_GROUP" ] || exec env IN_GROUP=1 unshare -m "$0" "$@"
mount -t tmpfs groups {groups} && mkdir {groups}/memory
echo 100000000 | tee {groups}/memory.max > {groups}/memory/memory.limit_in_bytes
exec {sys.executable} "$@"
"""
    )
    limited.chmod(0o755)
    given = [
        "server",
        "--port",
        "0",
        "--flight-port",
        "0",
        "--data",
        str(tmp_path / "data"),
        "--ready-file",
        str(ready),
    ]
    server = Process(["-m", "lakeward.cli", *given], tmp_path / "server.log", {}, python=str(limited))
    try:
        wait_until(ready.exists, what="the server's start", state=server.text)
        assert find(lab.examine(url=ready.read_text().strip()), "limits", "server", " of 100 MB memory")
    finally:
        server.kill()


def test_a_catalog_whose_server_is_gone_is_found(lab: Lab) -> None:
    away = ("lakes", "lake far", "its catalog does not answer")
    assert away not in lab.examine()
    lab.far.kill()
    wait_until(lambda: away in lab.examine(), poll_s=1, what="the doctor to miss the catalog")


def test_jobs_that_cannot_compact_are_found(lab: Lab) -> None:
    lab.client.create_table("doc.rounds", "id bigint", freshness="10 min")
    lab.job.kill()
    beat = {"job": "older", "instance": "o-2", "slots": 1, "kinds": ["tier"]}

    def is_found() -> bool:
        lab.client.server.ask("POST", HEARTBEAT, beat)
        return ("files", "server", "no live job does the work compact: older cannot") in lab.examine()

    wait_until(is_found, poll_s=1, what="the doctor to see that nobody compacts")
