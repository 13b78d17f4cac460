# SPDX-License-Identifier: Apache-2.0
"""The lake contract's partitions by time: a row lies where the transform puts it, and nothing else of it changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from lakeward.bucketing.pieces import split_partitions
from lakeward.errors import LakeMismatch
from lakeward.model import Bucket, to_arrow_schema
from lakeward.spi import LakeStorage, SupportsRewrite, check_table
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import COLUMNS, LakeSuite, needs, row
from lakeward_testing.scripted_log import Row, ScriptedLog

MOMENTS = (
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(2024, 2, 29, 12, 30),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
)
PARTITIONS = {
    "year": ["1969", "1970", "2024", "9999"],
    "month": ["1969-12", "1970-01", "2024-02", "9999-12"],
    "day": ["1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"],
    "hour": ["1969-12-31-23", "1970-01-01-00", "2024-02-29-12", "9999-12-31-23"],
}


class TimePartitionContract(LakeSuite):
    def make_timed(self, lake: LakeStorage, key: str, kind: str = "TIMESTAMP_LTZ(6)", **options: Any) -> ScriptedLog:
        columns = {**COLUMNS, "ts": f"{kind} NOT NULL"}
        table = self.table_info(columns=columns, partition_keys=(key,), bucket_count=1, **options)
        check_table(lake.name, lake.capabilities, table.path, table.descriptor)
        lake.catalog().create(table)
        return ScriptedLog(table)

    @needs("time_partitions", "appends")
    @pytest.mark.parametrize(
        ("unit", "kind"),
        [("year", "DATE"), ("month", "TIMESTAMP(6)"), ("day", "TIMESTAMP_LTZ(6)"), ("hour", "TIMESTAMP(6)")],
    )
    def test_rows_lie_in_the_partition_of_their_time(self, lake: LakeStorage, unit: str, kind: str) -> None:
        log = self.make_timed(lake, f"{unit}(ts)", kind)
        rows = [row(number, ts=_typed(moment, kind)) for number, moment in enumerate(MOMENTS)]
        assert _partitions_of(log, rows) == PARTITIONS[unit]
        for name, one in zip(PARTITIONS[unit], rows, strict=True):
            log.append(Bucket(name, 0), one)
        snapshot = LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        reader = lake.open_reader(log.table)
        for number, name in enumerate(PARTITIONS[unit]):
            (file,) = reader.files(snapshot.snapshot_id, Bucket(name, 0))
            assert file.partition == {f"{unit}(ts)": name}
            found = reader.scan(snapshot.snapshot_id, buckets=[Bucket(name, 0)])
            assert [r["id"] for batch in found for r in batch.to_pylist()] == [number]

    @needs("time_partitions", "upserts")
    def test_changes_of_keys_stay_in_their_days(self, lake: LakeStorage) -> None:
        log = self.make_timed(lake, "day(ts)", primary_key=("id", "ts"))
        early, late = (Bucket(name, 0) for name in PARTITIONS["day"][:2])
        at, then = (_typed(moment, "TIMESTAMP_LTZ(6)") for moment in MOMENTS[:2])
        log.upsert(early, row(1, ts=at), row(2, ts=at))
        log.upsert(late, row(1, ts=then))
        LakeRound.plan(lake, log).run()
        log.delete(early, row(1, ts=at))
        log.upsert(early, row(2, "new", ts=at))
        log.upsert(late, row(1, "other", ts=then), row(3, ts=then))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        if isinstance(lake, SupportsRewrite):
            LakeRewrite(lake=lake, table=log.table).run()
            log.delete(late, row(1, ts=then))
            LakeRound.plan(lake, log).run()
            assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("time_partitions", "appends")
    def test_another_time_of_the_column_is_a_mismatch(self, lake: LakeStorage) -> None:
        table = self.make_timed(lake, "day(ts)").table
        lake.catalog().validate(table)
        for key in ("month(ts)", None):
            keys = () if key is None else (key,)
            columns = {**COLUMNS, "ts": "TIMESTAMP_LTZ(6) NOT NULL"}
            other = self.table_info(columns=columns, partition_keys=keys, bucket_count=1, table_id=table.table_id)
            with pytest.raises(LakeMismatch):
                lake.catalog().validate(other)


def _typed(moment: datetime, kind: str) -> Any:
    if kind == "DATE":
        return moment.date()
    return moment.replace(tzinfo=UTC) if kind.startswith("TIMESTAMP_LTZ") else moment


def _partitions_of(log: ScriptedLog, rows: list[Row]) -> list[str]:
    table = pa.Table.from_pylist(rows, to_arrow_schema(log.table.schema))
    return [name for name, _ in split_partitions(log.table, table)]
