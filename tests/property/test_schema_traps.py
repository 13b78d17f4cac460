# SPDX-License-Identifier: Apache-2.0
"""Changes of columns where others went wrong: while a compaction runs, on keys, beyond what a type can hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import InvalidAlter, InvalidInput
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import ColumnChange, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward_testing.faults import FaultAction, Faults
from tests.kit.iceberg.flink import FlinkJob
from tests.kit.inprocess import InProcessLakeward
from tests.property.test_maintenance import iceberg_lake
from tests.property.test_schema_changes import warehouse_of

PATH = TablePath.parse("db.t")


@pytest.mark.parametrize("format", ["delta", "hudi", "iceberg", "lance", "paimon"])
def test_a_change_does_not_wait_for_a_compaction(tmp_path: Path, format: str) -> None:
    """It is made while a compaction is in work; whichever way that one ends, no row changes."""
    lake = iceberg_lake(tmp_path) if format == "iceberg" else warehouse_of(format)(tmp_path)
    with closing(InProcessLakeward(tmp_path, lake)) as world:
        world.create("db.t", "k INT NOT NULL, a INT, b STRING", primary_key="k")
        for start in range(0, 40, 10):
            world.upsert("db.t", [{"k": k, "a": k, "b": f"s{k}"} for k in range(start, start + 10)])
            world.tier("db.t")
        change: dict[str, Any] = {"add_columns": ({"name": "c", "type": "STRING"},)}
        if ColumnChange.RENAME in lake.capabilities.column_changes:
            change |= {"rename_columns": {"a": "x"}, "drop_columns": ("b",)}
        with Faults() as faults, ThreadPoolExecutor(1) as beside:
            pause = faults.arm("compact.planned", action=FaultAction.PAUSE)
            compaction = beside.submit(world.compact, "db.t")
            pause.wait_reached()
            try:
                after = world.federation.alter(PATH, AlterTable(**change)).table
                world.upsert("db.t", [{"k": 40, "c": "new"}])
                shown = sorted(world.read("db.t").to_table().to_pylist(), key=lambda r: r["k"])
            finally:
                pause.release()
            compaction.result(120)
        assert after.schema.schema_id == 2
        expected: list[dict[str, Any]] = []
        for k in range(41):
            row = {"k": k, "a": k, "b": f"s{k}", "c": None} if k < 40 else {"k": 40, "a": None, "b": None, "c": "new"}
            row = row if "a" in after.schema.names else {"k": k, "x": row["a"], "c": row["c"]}
            expected.append(row)
        assert shown == expected
        assert all(isinstance(end, TableFinished) for end in world.tier("db.t"))
        assert isinstance(world.compact("db.t"), TableFinished)
        for mode in ("union", "lake"):
            assert sorted(world.read("db.t", mode=mode).to_table().to_pylist(), key=lambda r: r["k"]) == expected


@pytest.mark.parametrize("format", ["delta", "hudi", "iceberg", "lance", "paimon"])
@pytest.mark.parametrize("key", ["", "k"])
def test_a_resync_compares_rows_from_before_and_after_a_widening(tmp_path: Path, format: str, key: str) -> None:
    """Formats without wider types get a new column alone."""
    lake = iceberg_lake(tmp_path) if format == "iceberg" else warehouse_of(format)(tmp_path)
    with closing(InProcessLakeward(tmp_path, lake)) as world:
        world.create("db.t", "k INT NOT NULL, a INT, f FLOAT, d DECIMAL(6, 2)", primary_key=key)
        put = world.upsert if key else world.append
        row = {"k": 1, "a": 2, "f": 0.25, "d": Decimal("1.25")}
        put("db.t", [row])
        world.tier("db.t")
        change: dict[str, Any] = {"add_columns": ({"name": "c", "type": "STRING"},)}
        if ColumnChange.WIDEN in lake.capabilities.column_changes:
            change |= {"widen_columns": {"a": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(9, 2)"}}
        world.federation.alter(PATH, AlterTable(**change))
        put("db.t", [{**row, "k": 2, "c": "x"}])
        put("db.t", [{**row, "k": 3}])
        world.tier("db.t")
        world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
        assert all(isinstance(end, TableFinished) for end in world.tier("db.t"))
        expected = [{**row, "k": k, "c": "x" if k == 2 else None} for k in (1, 2, 3)]
        for mode in ("union", "lake"):
            rows = world.read("db.t", mode=mode).to_table().to_pylist()
            assert sorted(rows, key=lambda r: r["k"]) == expected


@pytest.mark.parametrize(
    ("key", "wider"),
    [
        ("DATE", "TIMESTAMP(3)"),
        ("DECIMAL(6, 2)", "DECIMAL(9, 2)"),
        ("DECIMAL(6, 2)", "DECIMAL(8, 3)"),
        ("INT", "BIGINT"),
    ],
)
@pytest.mark.parametrize("kind", ["primary_key", "partition_by"])
def test_keys_keep_their_type(tmp_path: Path, kind: str, key: str, wider: str) -> None:
    """Buckets are hashes of the old type's bytes, and partition values are spelled by it."""
    if kind == "partition_by" and key.startswith("DECIMAL"):
        return
    with closing(InProcessLakeward(tmp_path, iceberg_lake(tmp_path))) as world:
        keys: dict[str, Any] = {kind: "k"}
        world.create("db.t", f"k {key} NOT NULL, a INT", **keys)
        with pytest.raises(InvalidAlter, match=r"k from .* (it is a key|values may not fit)"):
            world.federation.alter(PATH, AlterTable(widen_columns={"k": wider}))
        assert world.store.load_table(PATH).schema.schema_id == 1


def test_decimals_above_38_digits_are_refused(tmp_path: Path) -> None:
    with closing(InProcessLakeward(tmp_path, iceberg_lake(tmp_path))) as world:
        world.create("db.t", "k INT NOT NULL, a DECIMAL(30, 2)")
        for change in (
            {"widen_columns": {"a": "DECIMAL(39, 2)"}},
            {"add_columns": ({"name": "c", "type": "DECIMAL(40, 0)"},)},
        ):
            with pytest.raises(InvalidInput, match="38"):
                world.federation.alter(PATH, AlterTable(**change))
        world.federation.alter(PATH, AlterTable(widen_columns={"a": "DECIMAL(38, 2)"}))


def test_deletes_by_value_from_before_a_widening_leave_larger_values(tmp_path: Path) -> None:
    """As Flink writes them, in the old type: 2**32 + 5 is neither the 5 nor the NULL of such a file."""
    lake = iceberg_lake(tmp_path)
    assert isinstance(lake, IcebergLakeStorage)
    with closing(InProcessLakeward(tmp_path, lake)) as world:
        table = world.create("db.t", "k INT NOT NULL, a INT")
        world.append("db.t", [{"k": 1, "a": 5}, {"k": 2, "a": 6}])
        world.tier("db.t")
        world.federation.alter(PATH, AlterTable(widen_columns={"a": "BIGINT"}))
        world.append("db.t", [{"k": 3, "a": 2**32 + 5}, {"k": 4, "a": 2**40}, {"k": 5, "a": 5}, {"k": 6, "a": None}])
        world.tier("db.t")
        FlinkJob(lake.connection.catalog, PATH, table.table_id).delete_by_older_schema(
            pa.table({"a": pa.array([5, None], pa.int32())})
        )
        rows = world.read("db.t", mode="lake").to_table().to_pylist()
        assert sorted(rows, key=lambda r: r["k"]) == [{"k": 2, "a": 6}, {"k": 3, "a": 2**32 + 5}, {"k": 4, "a": 2**40}]
