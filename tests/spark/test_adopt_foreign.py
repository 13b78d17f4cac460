# SPDX-License-Identifier: Apache-2.0
"""Spark reads a table that others made, with columns that were renamed, widened, dropped and added before it was
adopted."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice

from lakeward.model import TablePath
from lakeward.protocol.operate import AdoptTable
from lakeward.read.arrow import request_of
from lakeward.read.spark.batch import read_frame
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]
PATH = "db.t"


def test_spark_reads_rows_from_before_and_ours(spark: Any, tmp_path: Path) -> None:
    with folder_lake(tmp_path) as lake:
        lake.connection.catalog.create_namespace("db")
        kinds = pa.schema([("n", pa.int32()), ("x", pa.float32()), ("d", pa.decimal128(6, 2)), ("old", pa.string())])
        table = lake.connection.catalog.create_table(("db", "t"), kinds)
        theirs = [{"n": n, "x": 0.5, "d": Decimal("1.25"), "old": "gone"} for n in range(3)]
        table.append(pa.Table.from_pylist(theirs, kinds))
        with table.update_schema() as change:
            change.update_column("n", ice.LongType())
            change.update_column("x", ice.DoubleType())
            change.update_column("d", ice.DecimalType(12, 2))
            change.rename_column("n", "id")
            change.delete_column("old")
            change.add_column("new", ice.StringType())
        world = InProcessLakeward(tmp_path / "server", lake)
        world.federation.adopt(TablePath.parse(PATH), AdoptTable(foreign=True))
        for n in (2**40, 2**41):
            world.append(PATH, [{"id": n, "x": 1.5, "d": Decimal("9999999999.25"), "new": "ours"}])
            if n == 2**40:
                world.tier(PATH)
        frame, opened = read_frame(spark, world.plugin, request_of(PATH), world.open_lake)
        with opened.lease:
            found = sorted(tuple(row) for row in frame.collect())
        before = [(n, 0.5, Decimal("1.25"), None) for n in range(3)]
        assert found == [*before, *((n, 1.5, Decimal("9999999999.25"), "ours") for n in (2**40, 2**41))]
        world.close()


@pytest.mark.parametrize("buckets", [1, 3])
def test_spark_reads_rows_that_were_adopted_with_their_key_and_what_replaced_them(
    spark: Any, tmp_path: Path, buckets: int
) -> None:
    with folder_lake(tmp_path) as lake:
        lake.connection.catalog.create_namespace("db")
        kinds = pa.schema([("n", pa.int32()), ("tags", pa.list_(pa.string()))])
        table = lake.connection.catalog.create_table(("db", "t"), kinds)
        table.append(pa.Table.from_pylist([{"n": n, "tags": ["old"]} for n in range(9)], kinds))
        with table.update_schema() as change:
            change.update_column("n", ice.LongType())
            change.rename_column("n", "id")
        world = InProcessLakeward(tmp_path / "server", lake)
        request = AdoptTable(foreign=True, primary_key=("id",), bucket_count=buckets)
        world.federation.adopt_keyed(TablePath.parse(PATH), request)
        world.federation.adoptions.run()
        world.upsert(PATH, [{"id": 1, "tags": ["lake"]}, {"id": 2**40, "tags": None}])
        world.delete(PATH, [{"id": 2}])
        world.tier(PATH)
        world.upsert(PATH, [{"id": 1, "tags": ["hot"]}, {"id": 3, "tags": ["hot"]}])
        world.delete(PATH, [{"id": 4}])
        frame, opened = read_frame(spark, world.plugin, request_of(PATH), world.open_lake)
        with opened.lease:
            found = {row.id: row.tags for row in frame.collect()}
        expected = {n: ["old"] for n in (0, 5, 6, 7, 8)} | {1: ["hot"], 3: ["hot"], 2**40: None}
        assert found == expected
        world.close()
