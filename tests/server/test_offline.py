# SPDX-License-Identifier: Apache-2.0
"""`verify --offline`: the lake's files alone prove their rows, and a removed, a doubled and an altered row is found.
The checker is also run as a script in a Python that cannot import Lakeward."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from lakeward.cli.app import run
from lakeward.verify import offline
from tests.spark.processes import Job, Server, tier_now

TABLES = {
    "shop.log": ("id BIGINT, name STRING, at TIMESTAMP, price DOUBLE", ()),
    "shop.pk": ("id BIGINT NOT NULL, name STRING", ("id",)),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds of each table; the server is stopped."""
    folder = tmp_path_factory.mktemp("offline")
    with ExitStack() as stack:
        server = Server(folder / "server")
        stack.callback(server.stop)
        job = Job(server, "threads", spark=False)
        stack.callback(job.kill)
        client = stack.enter_context(server.connect())
        for path, (columns, key) in TABLES.items():
            properties = {"table.datalake.certificates": "true"}
            table = client.create_table(path, columns, primary_key=key, freshness="1 h", properties=properties)
            for n in range(3):
                rows: list[dict[str, Any]] = [
                    {"id": i, "name": f"n{i}" if i % 5 else None} for i in range(n * 10, n * 10 + 15)
                ]
                if not key:
                    rows = [
                        {**row, "at": datetime(2026, 1, 1, 0, 0, 1, 500_000), "price": float(n) / 3} for row in rows
                    ]
                (table.upsert if key else table.append)(rows)
                tier_now(client, table)
    return folder / "server" / "data"


def warehouse(data: Path) -> Path:
    return next(path.parent.parent.parent for path in data.rglob("*/shop/log/metadata"))


@pytest.fixture
def copied(lake: Path) -> Iterator[Any]:
    """The lake as it was, put back after the test: metadata names absolute paths."""
    kept = lake.with_name("kept")
    shutil.copytree(lake, kept)
    catalogs = list(lake.rglob("*.db"))
    database = next(path for path in catalogs if "catalog" in path.name)
    catalog = load_catalog("lakeward", type="sql", uri=f"sqlite:///{database}", warehouse=str(warehouse(lake)))
    yield catalog
    catalog.close()
    shutil.rmtree(lake)
    kept.rename(lake)


@pytest.mark.parametrize("table", TABLES)
def test_an_honest_table_holds(lake: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--offline", str(warehouse(lake)), table, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["findings"], report["unchecked"], report["certificates"]) == ([], [], 3)
    assert report["rows"] == (45 if table == "shop.log" else 35)


def test_the_checker_runs_without_lakeward(lake: Path, tmp_path: Path) -> None:
    script = tmp_path / "offline.py"
    shutil.copy(offline.__file__, script)
    assert len(script.read_text().splitlines()) <= 200
    hide = "import sys, runpy; sys.modules['lakeward'] = None; del sys.argv[0]; "
    hide += "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-W", "ignore", "-c", hide, str(script), str(warehouse(lake)), "shop.log"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("deed", ["removed", "doubled", "altered"])
def test_a_changed_row_is_found(lake: Path, copied: Any, table: str, deed: str) -> None:
    """Another engine changes one row, and names its snapshot as Lakeward's, so that rows alone give it away."""
    loaded = copied.load_table(table)
    rows = loaded.scan(row_filter="__offset == 3").to_arrow()
    summary = dict(loaded.current_snapshot().summary.additional_properties)
    forged = {k: v for k, v in summary.items() if k.startswith(("lakeward.", "fluss-"))}
    if deed in ("removed", "altered"):
        loaded.delete("__offset == 3", snapshot_properties=forged)
    if deed == "altered":
        at = rows.schema.get_field_index("name")
        rows = rows.set_column(
            at, rows.schema.field(at), pa.array(["other"] * rows.num_rows, rows.schema.field(at).type)
        )
    if deed in ("doubled", "altered"):
        loaded.append(rows, snapshot_properties=forged)
    report = offline.check(str(warehouse(lake)), table)
    words = {"removed": ("missing", "rows, its newest"), "doubled": ("doubled",), "altered": ("altered since",)}[deed]
    assert any(word in finding for finding in report["findings"] for word in words), report
