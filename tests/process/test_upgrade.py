# SPDX-License-Identifier: Apache-2.0
"""From 0.1.0 to 0.2.0 as docs/upgrade.md says: the older release is built from the repository's own history, and its
jobs and producers work on while the server becomes the newer one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lakeward import __version__
from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import TableNotFound
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Process, Server, check_exactly_once, rounds, wait_tiered

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
OLD, OLD_COMMIT = "0.1.0", "c531e115"
LOG, PK, CHANGED = "shop.clicks", "shop.orders", "shop.changed"
PRODUCER = """
import sys, time
from pathlib import Path
import lakeward
from lakeward.errors import LakewardError

url, stop = sys.argv[1], Path(sys.argv[2])
client = lakeward.connect(url)
log = client.create_table("shop.clicks", "id bigint, page string", freshness="1 s", buckets=2)
orders = client.create_table("shop.orders", "id bigint not null, state string", primary_key="id", freshness="1 s")
turn = 0
while not stop.exists():
    try:
        log.append([{"id": turn * 50 + n, "page": f"page {n}"} for n in range(50)])
        orders.upsert([{"id": n, "state": f"turn {turn}"} for n in range(turn % 10, 200, 10)])
        orders.delete([{"id": turn % 200}])
    except LakewardError as error:
        print("again:", error, flush=True)
        time.sleep(0.2)
        continue
    print("acknowledged", turn, flush=True)
    turn += 1
    time.sleep(0.05)
"""


def call(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment with the older release, as a wheel."""
    if subprocess.run(["git", "cat-file", "-e", f"{OLD_COMMIT}^{{commit}}"], cwd=ROOT, check=False).returncode != 0:
        pytest.skip(f"the history of this copy does not reach back to {OLD}")
    place = tmp_path_factory.mktemp("old")
    source, python, uv = place / "source", place / "venv" / "bin" / "python", ROOT / ".venv" / "bin" / "uv"
    source.mkdir()
    call("git", "archive", "--output", place / "source.tar", OLD_COMMIT)
    call("tar", "-xf", place / "source.tar", "-C", source)
    call(uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", place, source)
    (wheel,) = place.glob("*.whl")
    assert OLD in wheel.name
    call(uv, "venv", "--quiet", "--python", sys.executable, place / "venv")
    wanted = f"lakeward[server,spark,iceberg,cli] @ {wheel.as_uri()}"
    call(uv, "pip", "install", "--quiet", "--python", python, "--constraints", source / "requirements.lock", wanted)
    return str(python)


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()


def by_job(client: Client, table: str, job: str) -> int:
    return sum(r["job"] == job and r["outcome"] == "done" for r in rounds(client, client.table(table)))


def has_more(client: Client, table: str, job: str, count: int) -> bool:
    return by_job(client, table, job) > count


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_rounds_go_on_while_the_server_is_replaced(
    old_python: str, tmp_path: Path, processes: list[Process], capsys: pytest.CaptureFixture[str], end: str
) -> None:
    server = Server(tmp_path, python=old_python)
    assert server.process is not None
    processes.append(server.process)
    processes.append(old := Job(server, "old", master="local[2,4]", python=old_python))
    arguments = ["-c", PRODUCER, server.url, str(tmp_path / "stop")]
    processes.append(producer := Process(arguments, tmp_path / "producer.log", {}, old_python))
    with server.connect() as client:
        assert client.info().version == OLD
        more = partial(has_more, client, PK, "old", 1)
        wait_until(more, limit_s=180, what="rounds of the older job", tolerate=(TableNotFound,), state=old.text)

    server.kill() if end == "killed" else server.stop()
    server.python = sys.executable
    server.start()
    processes.append(server.process)
    with server.connect() as client:
        assert client.info().version == __version__
        before = {name: by_job(client, name, "old") for name in (LOG, PK)}
        for name, count in before.items():
            wait_until(partial(has_more, client, name, "old", count), what=f"{name} by the older job", state=old.text)
        app.run(["doctor", "--server", server.url])
        assert f"jobs of {OLD}, a server of {__version__}" in capsys.readouterr().out

        changed = client.create_table(CHANGED, "id bigint, name string, n int", freshness="1 s")
        changed.append([{"id": 1, "name": "one", "n": 1}])
        wait_tiered(client, changed, state=old.text)
        client.alter_table(CHANGED, rename={"name": "title"}, widen={"n": "bigint"})
        changed = client.table(CHANGED)
        changed.append([{"id": 2, "title": "two", "n": 2**40}])

        processes.append(new := Job(server, "new", master="local[2,4]"))
        assert old.stop() == 0
        for name in (LOG, PK):
            wait_until(partial(has_more, client, name, "new", 0), what=f"{name} by the newer job", state=new.text)
        (tmp_path / "stop").touch()
        assert producer.wait() == 0, producer.text()
        tables = [client.table(name) for name in (LOG, PK, CHANGED)]
        wait_tiered(client, *tables)
        acknowledged = producer.text().count("acknowledged")
        assert check_exactly_once(client, tables[0]) >= 50 * acknowledged
        assert check_exactly_once(client, tables[1]) > 0
        assert check_exactly_once(client, changed) == 2
        assert app.run(["verify", "--deep", "--server", server.url]) == 0
        capsys.readouterr()
        app.run(["doctor", "--server", server.url])  # on a busy machine it finds rounds longer than the freshness
        assert "jobs of" not in capsys.readouterr().out
    assert new.stop() == 0
