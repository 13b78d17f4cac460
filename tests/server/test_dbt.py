# SPDX-License-Identifier: Apache-2.0
"""docs/dbt.md, as it is written there: dbt in an environment of its own, on the catalog of a server, with a token and
without."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from lakeward.read.duckdblake import extension_file
from tests.spark.processes import Job, Server, tier_now

pytestmark = pytest.mark.soak
PAGE = (Path(__file__).parents[2] / "docs/dbt.md").read_text()
TOKENS = "ann:admin:top,otto:job:hammer,rita:read:look"
CATALOG = "http://127.0.0.1:9050/iceberg"


@pytest.fixture(scope="module")
def dbt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uv = shutil.which("uv")
    assert uv is not None, "`make test` brings uv into the environment it makes"
    folder = tmp_path_factory.mktemp("dbt")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    packages = re.findall(r"'([a-z-]+==[\d.]+)'", PAGE)
    assert packages
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), *packages], check=True)
    return folder / "bin/dbt"


def make_project(folder: Path, url: str, *, has_token: bool) -> None:
    for name, text in re.findall(r"```(?:yaml|sql)\n(?:#|--) (\S+)\n(.*?)```", PAGE, re.S):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace(CATALOG, f"{url}/iceberg"))
    profile = (folder / "profiles.yml").read_text()
    if has_token:
        guarded = re.findall(r"```yaml\n(      secrets:.*?)```", PAGE, re.S)[0]
        guarded = re.sub(r'endpoint: "[^"]+"', f'endpoint: "{url}/iceberg"', guarded)
        profile = profile[: profile.index("      attach:")] + guarded
    # Extensions come from the wheels of our own environment: installing what is there downloads nothing.
    platform = duckdb.execute("PRAGMA platform").fetchone()
    assert platform is not None
    there = folder / "extensions" / f"v{duckdb.__version__}" / str(platform[0])
    there.mkdir(parents=True)
    for extension in ("httpfs", "avro", "iceberg"):
        shutil.copy(extension_file(extension), there / f"{extension}.duckdb_extension")
    (folder / "profiles.yml").write_text(
        f"{profile}      config_options: {{extension_directory: '{there.parents[1]}'}}\n"
    )


@pytest.mark.parametrize("has_token", [False, True], ids=["open", "guarded"])
def test_the_page_works(dbt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_token: bool) -> None:
    if has_token:
        monkeypatch.setenv("LAKEWARD_TOKEN", "top")
    server = Server(tmp_path / "server", {"server.tokens": TOKENS} if has_token else {})
    job = Job(server, "dbt", spark=False)
    try:
        with server.connect() as client:
            table = client.create_table("shop.orders", "id BIGINT, state STRING, amount DOUBLE", primary_key="id")
            table.upsert([{"id": n, "state": "new" if n % 3 else "paid", "amount": 1.0} for n in range(9)])
            table.delete([{"id": 0}])
            tier_now(client, table)
        project = tmp_path / "project"
        make_project(project, server.url, has_token=has_token)
        monkeypatch.setenv("LAKEWARD_TOKEN", "look")
        command = [str(dbt), "build", "--project-dir", str(project), "--profiles-dir", str(project), "--no-use-colors"]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Completed successfully" in done.stdout
        with duckdb.connect(str(project / "shop.duckdb"), read_only=True) as result:
            found = result.execute("SELECT * FROM by_state ORDER BY state").fetchall()
        assert found == [("new", 6, 6.0), ("paid", 2, 2.0)]
    finally:
        job.kill()
        server.stop()
