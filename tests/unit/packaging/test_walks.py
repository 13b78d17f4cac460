# SPDX-License-Identifier: Apache-2.0
"""The walks of CONTRIBUTING, "a lake format" and "a kind of work": no file has to be opened that they do not name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lakeward.model import BucketFunction
from lakeward.spi import load_lake
from tests.kit import toylake, toysource
from tests.kit.inprocess import InProcessLakeward

SRC = Path(__file__).parents[3] / "src" / "lakeward"
OPENED = ("catalog", "parquet", "storage", "versionlog")
OF_A_KIND = {"model/side.py", "tiering/work/kinds.py", "coordinator/kinds/__init__.py"}


def test_a_lake_format_is_a_folder_and_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are made in it, rounds run, and reads find their rows: nothing else has heard its name."""
    installed = tmp_path / "toy-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[lakeward.lake]\ntoy = {toylake.__name__}:load\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    world = InProcessLakeward(tmp_path / "data", load_lake("toy", {"folder": str(tmp_path / "lake")}))
    try:
        table = world.create("db.t", "id bigint not null, v string", primary_key="id")
        assert table.descriptor.properties["table.datalake.format"] == "toy"
        assert table.descriptor.bucket_function is BucketFunction.FLUSS
        world.upsert("db.t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        world.tier("db.t")
        world.upsert("db.t", [{"id": 2, "v": "c"}])
        world.tier("db.t")
        world.upsert("db.t", [{"id": 3, "v": "hot"}])
        rows = world.read("db.t").to_table().to_pylist()
        assert sorted((r["id"], r["v"]) for r in rows) == [(1, "a"), (2, "c"), (3, "hot")]
    finally:
        world.close()


def test_a_lake_format_subclasses_classes_of_at_most_six_files() -> None:
    """Those are the files to open; what else the toy imports it only calls."""
    own = [c for c in vars(toylake).values() if isinstance(c, type) and c.__module__ == toylake.__name__]
    opened = {base.__module__ for c in own for base in c.__bases__ if base.__module__.startswith("lakeward.lake.")}
    assert opened == {f"lakeward.lake.core.{name}" for name in OPENED}


@pytest.mark.parametrize("format", ["delta", "lance"])
def test_a_lake_format_is_named_in_two_files_outside_its_folder(format: str) -> None:
    """Which prefixes properties may have, and what `lakeward chaos` can break; the
    entry point is in pyproject.toml."""
    word = re.compile(rf"[\"']{format}[\"']|lakeward\.lake\.{format}\b")
    naming = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if not path.is_relative_to(SRC / "lake") and word.search(path.read_text())
    }
    assert naming == {"config/tables.py", "cli/run/chaos.py"}


def test_a_kind_of_work_is_two_new_places_and_three_lines() -> None:
    """Compaction is one: what names it outside its own code are the three registries."""
    # Paimon and Hudi have the word for a kind of commit, and the facade lists all public names.
    own = re.compile(
        r"tiering/compact/|coordinator/kinds/compact\.py|hot/fluss/handout/compactions\.py"
        r"|lake/paimon/|lake/hudi/|model/__init__\.py"
    )
    naming = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if re.search(r"\bCOMPACT\b|CompactKind|CompactRunner", path.read_text())
    }
    assert {path for path in naming if not own.match(path)} == OF_A_KIND


def test_a_kind_of_source_subclasses_classes_of_one_file() -> None:
    own = [c for c in vars(toysource).values() if isinstance(c, type) and c.__module__ == toysource.__name__]
    assert {base.__module__ for c in own for base in c.__bases__} == {"lakeward.spi.source"}


@pytest.mark.parametrize(("kind", "expected"), [("kafka", set()), ("postgres", {"cli/source.py", "spi/registry.py"})])
def test_a_kind_of_source_is_named_in_two_files_outside_its_folder(kind: str, expected: set[str]) -> None:
    """Of Postgres: `lakeward verify --postgres`, and the other scheme of its URLs. The entry point is in
    pyproject.toml."""
    word = re.compile(rf"[\"']{kind}[\"']|lakeward\.source\.{kind}\b")
    naming = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if not path.is_relative_to(SRC / "source") and word.search(path.read_text())
    }
    assert naming == expected
