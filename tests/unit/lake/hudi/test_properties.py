# SPDX-License-Identifier: Apache-2.0
"""Properties that others changed: rounds stop in words, and go on once they are put right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeward.errors import InvalidAlter, InvalidConfig, InvalidTable, LakeSchemaBroken
from lakeward.lake.hudi.meta.columns import to_avro_schema
from lakeward.lake.hudi.plugin import open_lake
from lakeward.model import Column, parse_type
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, COLUMNS, LakeSuite, row

SUITE = LakeSuite()


def test_another_merge_mode_stops_rounds_until_it_is_put_back(tmp_path: Path) -> None:
    lake = open_lake({"warehouse": str(tmp_path)})
    log = SUITE.make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1))
    LakeRound.plan(lake, log).run()
    table, key = lake.table(log.table.path), "hoodie.record.merge.mode"
    log.upsert(B0, row(2))
    under_way = LakeRound.plan(lake, log).write(B0)
    table.change_properties(lambda p: {**p, key: "EVENT_TIME_ORDERING"})
    for attempt in (under_way.prepare, lambda: LakeRound.plan(lake, log)):
        with pytest.raises(LakeSchemaBroken, match="EVENT_TIME_ORDERING, wanted COMMIT_TIME_ORDERING"):
            attempt()
    assert len(lake.catalog().reconcile_schema(log.table, dry_run=True)) == 1
    assert len(lake.catalog().reconcile_schema(log.table)) == 1
    assert lake.catalog().reconcile_schema(log.table) == ()
    under_way.commit()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_table_that_others_upgraded_stops_with_the_way_out(tmp_path: Path) -> None:
    lake = open_lake({"warehouse": str(tmp_path)})
    log = SUITE.make_log(lake)
    reader, upkeep = lake.open_reader(log.table), lake.open_maintenance(log.table)
    log.append(B0, row(1))
    under_way = LakeRound.plan(lake, log).write(B0)
    lake.table(log.table.path).change_properties(lambda p: {**p, "hoodie.table.version": "10"})
    for deed in (under_way.commit, reader.load_base, reader.load_snapshot, upkeep.references):
        with pytest.raises(LakeSchemaBroken, match=r"version 10, and 9 is supported.*downgrade table"):
            deed()
    with pytest.raises(InvalidAlter, match="downgrade table"):
        lake.catalog().reconcile_schema(log.table)


def test_what_hudi_keeps_for_itself_is_refused(tmp_path: Path) -> None:
    lake = open_lake({"warehouse": str(tmp_path)})
    own = SUITE.table_info(columns={**COLUMNS, "_hoodie_x": "INT"})
    with pytest.raises(InvalidTable, match="_hoodie_"):
        lake.catalog().create(own)
    with pytest.raises(InvalidTable, match="rounds rely on it"):
        lake.catalog().create(SUITE.table_info(properties={"hudi.hoodie.table.type": "COPY_ON_WRITE"}))
    with pytest.raises(InvalidConfig, match="under a lock"):
        open_lake({"warehouse": "s3://bucket/lake"})


@pytest.mark.parametrize(
    ("columns", "odd"),
    [
        ({"id": "BIGINT", "Order No": "STRING"}, "Order No"),
        ({"id": "BIGINT", "größe": "INT"}, "größe"),
        ({"id": "BIGINT", "r": "ARRAY<ROW<`2nd` INT>>"}, "2nd"),
        ({"id": "BIGINT", "m": "MAP<STRING, ROW<`a-b` INT>>"}, "a-b"),
    ],
)
def test_a_name_that_avro_has_not_is_refused(columns: dict[str, str], odd: str, tmp_path: Path) -> None:
    """Hudi and hudi-rs read no column of a table that has such a one."""
    lake = open_lake({"warehouse": str(tmp_path)})
    with pytest.raises(InvalidTable, match=f"column '{odd}': names in Hudi are those of Avro"):
        lake.catalog().create(SUITE.table_info(columns=columns))
    table = SUITE.table_info()
    lake.catalog().create(table)
    added = [Column(name=n, type=parse_type(t)) for n, t in columns.items() if n != "id"]
    with pytest.raises(InvalidAlter, match=f"add {odd}: names in Hudi are those of Avro"):
        lake.catalog().add_columns(table, added)


@pytest.mark.parametrize(("name", "record"), [("web-visits", "web_visits_record"), ("2026", "t2026_record")])
def test_a_table_is_known_to_avro_by_a_name_that_avro_has(name: str, record: str) -> None:
    schema = json.loads(to_avro_schema([Column(name="r", type=parse_type("ROW<x INT>"))], name))
    assert schema["name"] == record
    assert schema["namespace"] == f"hoodie.{record.removesuffix('_record')}"
    inner = schema["fields"][0]["type"][1]
    assert (inner["namespace"], inner["name"]) == (f"{schema['namespace']}.{record}", "r")
