# SPDX-License-Identifier: Apache-2.0
"""The walk of CONTRIBUTING, "a column type": a class and a row of the table, in two files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "lakeward"
TYPES = "model/types/__init__.py"
YEAR = {
    TYPES: ("@dataclass(frozen=True, kw_only=True)\n" "class DateType", """@dataclass(frozen=True, kw_only=True)
class YearType(DataType):
    keyword = "YEAR"


"""),
    "model/types/typetable.py": (")  # fmt: skip", """    TypeRow(
        cls=t.YearType, is_spelled=True, arrow="int32", iceberg="int", spark="int", fluss=None, delta="integer",
        avro="int", paimon="INT", example=t.YearType(), values=(-44, 1969),
    ),
"""),
}  # fmt: skip
"""The source files that a column type is added to: where, and what."""

ROUNDS = """
import sys, pathlib
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import delta_lake, hudi_lake, iceberg_lake, lance_lake, memory_lake, paimon_lake
for make in (delta_lake, hudi_lake, iceberg_lake, lance_lake, memory_lake, paimon_lake):
    folder = pathlib.Path(sys.argv[1]) / make.__name__
    folder.mkdir()
    world = InProcessLakeward(folder, make(folder))
    world.create("db.t", "id bigint not null, y year, l array<year>", primary_key="id")
    world.upsert("db.t", [{"id": 1, "y": -44, "l": [1]}, {"id": 2, "y": 1969, "l": None}])
    world.tier("db.t")
    world.upsert("db.t", [{"id": 2, "y": None, "l": [1969, None]}])
    rows = world.read("db.t").to_table().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "y": -44, "l": [1]}, {"id": 2, "y": None, "l": [1969, None]}], (make, rows)
    world.close()
"""


def test_a_column_type_is_a_class_and_a_row_of_the_table(tmp_path: Path) -> None:
    """In a copy of the source with such a type: every reader, writer and format takes it."""
    copied = shutil.copytree(SRC, tmp_path / "src" / "lakeward", ignore=shutil.ignore_patterns("__pycache__", "web"))
    for name, (before, added) in YEAR.items():
        text = (copied / name).read_text()
        assert text.count(before) == 1
        (copied / name).write_text(text.replace(before, added + before))
    own_tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    own_tests += ["tests/unit/model/test_typetable.py", "-k", "YearType"]
    for command in (own_tests, [sys.executable, "-c", ROUNDS, str(tmp_path)]):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copied.parent), str(ROOT)])}
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
