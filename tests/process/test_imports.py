# SPDX-License-Identifier: Apache-2.0
"""Imports point down only, a wrong one is caught, and `import lakeward` loads nothing heavy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")
CONTRACT = (ROOT / "pyproject.toml").read_text().partition("[tool.importlinter]")
LAYERS = re.findall(r"[a-z]+", re.search(r"layers = \[(.*?)\]", CONTRACT[2], re.DOTALL)[1])  # type: ignore[index]

NAMED = {n for n in re.findall(r'"lakeward\.([a-z.]+)"', CONTRACT[2]) if "." in n}
"""Modules below the layers that a contract names: they must be there."""


def make_tree(folder: Path, added: dict[str, str]) -> Path:
    """A package with our layers, empty, under our contract, with some code in it."""
    for layer in (*LAYERS, *sorted(NAMED)):
        at = folder / "lakeward"
        for part in layer.split("."):
            at /= part
            at.mkdir(parents=True, exist_ok=True)
            (at / "__init__.py").write_text("")
    shutil.copy(ROOT / "src" / "lakeward" / "__init__.py", folder / "lakeward")
    for module, code in added.items():
        (folder / "lakeward" / module).write_text(code)
    (folder / "pyproject.toml").write_text(CONTRACT[1] + CONTRACT[2])
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([LINT, "--no-cache"], cwd=folder, env=variables, capture_output=True, text=True)


def test_our_own_imports_keep_the_contract() -> None:
    run = subprocess.run([LINT], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_right_imports_pass(tmp_path: Path) -> None:
    run = lint(
        make_tree(
            tmp_path,
            {
                "read/plan.py": "from lakeward.spi import *\nfrom lakeward.model import *\n",
                "spark/door.py": "import pyspark\n",
            },
        )
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("module", "code", "words"),
    [
        ("model/table.py", "import lakeward.config\n", "lakeward.model"),
        ("coordinator/lease.py", "from lakeward.server import app\n", "lakeward.coordinator"),
        ("coordinator/round.py", "import lakeward.tiering\n", "lakeward.coordinator"),
        ("lake/files.py", "def f():\n    import lakeward.hot\n", "lakeward.lake"),
        ("client/door.py", "import pyspark\n", "pyspark"),
        ("read/plan.py", "import pyspark\n", "lakeward.read.plan"),
        ("cli/app.py", "import lakeward_testing.faults\n", "lakeward.cli.app"),
    ],
    ids=[
        "upwards",
        "upwards-from-the-coordinator",
        "sibling",
        "sibling-inside-a-function",
        "pyspark-in-the-client",
        "pyspark-in-a-plan",
        "test-kit-in-a-command",
    ],
)
def test_a_wrong_import_fails(tmp_path: Path, module: str, code: str, words: str) -> None:
    run = lint(make_tree(tmp_path, {module: code}))
    assert run.returncode != 0
    assert "BROKEN" in run.stdout
    assert words in run.stdout


def test_a_package_that_is_in_no_layer_fails(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {})
    shutil.copytree(tree / "lakeward" / "model", tree / "lakeward" / "misplaced")
    run = lint(tree)
    assert run.returncode != 0
    assert "misplaced" in run.stdout


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return set(json.loads(run.stdout))


def test_import_lakeward_loads_nothing_heavy() -> None:
    loaded = loaded_by("import lakeward")
    assert "lakeward" in loaded
    for heavy in (
        "pyspark",
        "pyiceberg",
        "pyarrow.flight",
        "pyarrow",
        "numpy",
        "httpx",
        "rocksdict",
        "fastapi",
        "typer",
    ):
        assert heavy not in loaded


def test_the_client_and_the_plug_points_need_no_engine() -> None:
    loaded = loaded_by(
        "import lakeward.config, lakeward.protocol.codec, lakeward.spi.lake, lakeward.spi.hot, lakeward.spi.coordinator"
    )
    for heavy in ("pyspark", "pyiceberg", "rocksdict", "fastapi", "typer", "duckdb"):
        assert heavy not in loaded


@pytest.fixture
def refusing() -> Iterator[str]:
    """A server that knows no route: a command that calls it ends at once, where it would wait for one that is gone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_commands_that_only_call_the_server_load_little(refusing: str) -> None:
    """Arrow and numpy are half a second of a cold start; pydantic, which typer reads
    arguments with, and httpx a third of one."""
    commands = [["tier-now", "db.t"], ["pause", "db.t"], ["status"], ["rounds"], ["jobs"]]
    loaded = loaded_by(
        "import contextlib\nfrom lakeward.cli.app import run\nwith contextlib.redirect_stdout(None):\n"
        f"    codes = [run([*c, '--server', '{refusing}']) for c in {commands}]\nassert all(codes)"
    )
    assert "lakeward.hot.embedded.remote.http" in loaded
    for heavy in ("pyarrow", "numpy", "pyspark", "pyiceberg", "pydantic", "httpx", "rich", "click", "asyncio"):
        assert heavy not in loaded


def test_a_command_about_a_table_by_name_loads_no_types_of_columns(refusing: str) -> None:
    """They are a third of what such a command loads of ours."""
    loaded = loaded_by(f"from lakeward.cli.app import run\nassert run(['pause', 'd.t', '--server', '{refusing}'])")
    assert "lakeward.model.tablepath" in loaded
    for heavy in ("lakeward.model.schema", "lakeward.model.types", "lakeward.protocol.codec"):
        assert heavy not in loaded


def test_a_command_loads_only_its_own_module() -> None:
    loaded = loaded_by(
        "import contextlib\nfrom lakeward.cli.app import run\nwith contextlib.redirect_stdout(None): run(['version'])"
    )
    for heavy in ("pyspark", "pyiceberg", "rocksdict", "fastapi", "duckdb", "pyarrow.flight"):
        assert heavy not in loaded


def test_what_python_workers_are_forked_from_has_no_library_that_does_not_outlive_a_fork() -> None:
    loaded = loaded_by('from lakeward.tiering.work.preload import import_for_rounds; import_for_rounds(["embedded"])')
    assert "lakeward.lake.lance.plugin" in loaded
    assert "lance" not in loaded
