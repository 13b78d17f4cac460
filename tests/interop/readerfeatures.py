# SPDX-License-Identifier: Apache-2.0
"""What rounds and compactions leave in Iceberg tables, each in a table of its own, as every engine reads it back; and
the page that says so.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.lakes.upserts import change_randomly
from lakeward_testing.scripted_log import ScriptedLog
from tests.interop.enginetypes import PAGE

BEGIN, END = (
    "<!-- features: tests/interop/test_features.py compares this table with what it reads -->",
    "<!-- end of features -->",
)
ENGINES = ("Lakeward", "PyIceberg 0.12", "DuckDB 1.5", "DataFusion 54", "Spark 4.1, Java Iceberg 1.12")
VERSION = "iceberg.format-version"


def updates(lake: IcebergLakeStorage, name: str, version: int) -> ScriptedLog:
    """Ten rounds: manifests are merged on the way."""
    log, chance = _log(lake, name, version), random.Random(11)
    for _ in range(10):
        change_randomly(log, chance, 15)
        LakeRound.plan(lake, log).run()
    return log


def rewritten(lake: IcebergLakeStorage, name: str, version: int) -> ScriptedLog:
    """Some of the files, while a round deleted rows of theirs; then more rounds."""
    log, chance = updates(lake, name, version), random.Random(12)
    rewrite = LakeRewrite(lake=lake, table=log.table)
    rewrite.groups = [replace(g, files=g.files[1:6]) for g in rewrite.groups]
    rewrite.write()
    change_randomly(log, chance, 15)
    LakeRound.plan(lake, log).run()
    prepared = rewrite.prepare()
    assert prepared.carried > 0
    rewrite.commit(prepared)
    change_randomly(log, chance, 15)
    LakeRound.plan(lake, log).run()
    return log


def moved(lake: IcebergLakeStorage, name: str, _version: int) -> ScriptedLog:
    """Positional delete files and vectors side by side."""
    log, chance = updates(lake, name, 2), random.Random(13)
    lake.catalog().set_properties(log.table, {VERSION: "3"})
    change_randomly(log, chance, 15)
    LakeRound.plan(lake, log).run()
    return log


def by_key(lake: IcebergLakeStorage, name: str, version: int) -> ScriptedLog:
    """As tables of Fluss have them."""
    log = _log(lake, name, version)
    for number in range(4):
        log.upsert(B0, row(number))
        LakeRound.plan(lake, log).run()
    start = log.end(B0)
    log.delete(B0, row(2))
    late = LakeRound.plan(lake, log)
    writer = lake.open_writer(late.task(B0, start, log.end(B0)))
    writer.delete_keys(pa.record_batch({"id": pa.array([2], pa.int64())}))
    late.take(B0, log.end(B0), writer.complete())
    snapshot = late.commit()
    deletes = {d.content for f in lake.open_reader(log.table).files(snapshot.snapshot_id) for d in f.deletes}
    assert deletes == {"equality"}, deletes
    return log


def by_key_rewritten(lake: IcebergLakeStorage, name: str, version: int) -> ScriptedLog:
    log = by_key(lake, name, version)
    LakeRewrite(lake=lake, table=log.table).run()
    return log


FEATURES: Mapping[str, tuple[Callable[[IcebergLakeStorage, str, int], ScriptedLog], int]] = {
    "version 2, positional delete files": (updates, 2),
    "version 2, files that a compaction wrote, with deletes that came meanwhile": (rewritten, 2),
    "version 3, deletion vectors": (updates, 3),
    "version 3, files that a compaction wrote, with deletes that came meanwhile": (rewritten, 3),
    "moved from version 2 to 3": (moved, 3),
    "equality deletes (tables of Fluss)": (by_key, 2),
    "equality deletes that a compaction took away": (by_key_rewritten, 2),
}


def make_tables(lake: IcebergLakeStorage, prefix: str = "features") -> dict[str, ScriptedLog]:
    return {
        feature: make(lake, f"{prefix}_{number}", version)
        for number, (feature, (make, version)) in enumerate(FEATURES.items())
    }


def judge(log: ScriptedLog, read: Callable[[ScriptedLog], list[dict[str, Any]]]) -> str:
    expected = sorted((b.number, r["id"], r["name"]) for b, _, r in log.expected(log.ends()))
    try:
        found = sorted((r["__bucket"], r["id"], r["name"]) for r in read(log))
    except Exception:  # noqa: BLE001 - whatever an engine raises
        return "**no**: refused"
    return "yes" if found == expected else "**no**: other rows"


def check_features(
    engine: str, tables: Mapping[str, ScriptedLog], read: Callable[[ScriptedLog], list[dict[str, Any]]]
) -> None:
    """`LAKEWARD_WRITE_PAGE=1` puts what was read into the page, in place of comparing."""
    cells = {feature: judge(log, read) for feature, log in tables.items()}
    if os.environ.get("LAKEWARD_WRITE_PAGE"):
        _write(engine, cells)
    assert {feature: by_engine[engine] for feature, by_engine in _read().items()} == cells


def _read() -> dict[str, dict[str, str]]:
    section = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    return {r[0].strip(): dict(zip(ENGINES, (c.strip() for c in r[1:]), strict=True)) for r in lines}


def _write(engine: str, cells: Mapping[str, str]) -> None:
    known = {**{f: dict.fromkeys(ENGINES, "not tried") for f in FEATURES}, **_read()}
    head = [f"| what | {' | '.join(ENGINES)} |", f"|---|{'---|' * len(ENGINES)}"]
    lines = []
    for feature in FEATURES:
        by_engine = {**known[feature], engine: cells[feature]}
        lines.append(f"| {feature} | {' | '.join(by_engine[e] for e in ENGINES)} |")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *head, *lines, "", END + after]))


def _log(lake: IcebergLakeStorage, name: str, version: int) -> ScriptedLog:
    return LakeSuite().make_log(lake, name, primary_key=("id",), properties={VERSION: str(version)})
