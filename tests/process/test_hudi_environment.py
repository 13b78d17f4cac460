# SPDX-License-Identifier: Apache-2.0
"""tests/hudi, which needs another PySpark than this one, in an environment of its own: `.ci/hudi` makes and runs it.

`make test` runs the quick ones in one process; `make soak` a file at a time, and what of tests/spark makes sense there.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CANNOT_BE_HAD = 77
ALSO_ON_SPARK_3 = ("test_end_to_end.py", "test_union_read.py", "test_union_read_deletes.py", "test_verify.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tests" in metafunc.fixturenames:
        metafunc.parametrize("tests", parts(is_soak=metafunc.config.getoption("--soak")))


def parts(*, is_soak: bool) -> list[str]:
    if not is_soak:
        return ["tests/hudi"]
    files = sorted((ROOT / "tests" / "hudi").glob("test_*.py"))
    also = [ROOT / "tests" / "spark" / name for name in ALSO_ON_SPARK_3]
    return [str(path.relative_to(ROOT)) for path in (*files, *also)]


@pytest.mark.parametrize("command", ["tier", "up"])
def test_a_pool_that_this_pyspark_cannot_serve_is_refused_before_anything_starts(command: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "lakeward.cli", command, "--pool", "hudi"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert f"pool hudi on PySpark {version('pyspark')}" in done.stderr
    assert "for PySpark 3.5 alone" in done.stderr
    assert "pip install 'lakeward[hudi-pool]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_on_spark_3_with_hudi(tests: str, pytestconfig: pytest.Config) -> None:
    soak = ["--soak"] if pytestconfig.getoption("--soak") else []
    command = [str(ROOT / ".ci" / "hudi"), "-p", "no:cacheprovider", *soak, tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == CANNOT_BE_HAD:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    print(done.stdout)
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
