# SPDX-License-Identifier: Apache-2.0
"""The lake contract's DDL: create, validate, diff, adopt, alter, every type."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from lakeward.errors import InvalidTable, LakeMismatch, LakeNotEmpty, LakeTableGone
from lakeward.model import Column, OffsetMap, parse_type
from lakeward.spi import LakeStorage
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, COLUMNS, LakeSuite, needs, row

EVERY_TYPE: dict[str, tuple[str, list[Any]]] = {
    "a_boolean": ("BOOLEAN", [True, None, False]),
    "a_tinyint": ("TINYINT", [-128, None, 127]),
    "a_smallint": ("SMALLINT", [-32768, None, 32767]),
    "an_int": ("INT", [-(2**31), None, 2**31 - 1]),
    "a_bigint": ("BIGINT", [-(2**63), None, 2**63 - 1]),
    "a_float": ("FLOAT", [-1.5, None, 0.0]),
    "a_double": ("DOUBLE", [-1e300, None, 5e-324]),
    "a_decimal": ("DECIMAL(20, 3)", [Decimal("-99999999999999999.999"), None, Decimal("0.001")]),
    "a_char": ("CHAR(3)", ["abc", None, "ü"]),
    "a_string": ("STRING", ["", None, "größer 漢字"]),
    "a_binary": ("BINARY(2)", [b"\x00\xff", None, b"ab"]),
    "some_bytes": ("BYTES", [b"", None, b"\x00" * 9]),
    "a_date": ("DATE", [date(1969, 12, 31), None, date(2100, 1, 1)]),
    "a_time": ("TIME(3)", [time(0, 0), None, time(23, 59, 59, 999_000)]),
    "a_timestamp": ("TIMESTAMP(6)", [datetime(1969, 1, 1, 1, 1, 1, 1), None, datetime(2100, 1, 1)]),
    "an_instant": (
        "TIMESTAMP_LTZ(6)",
        [datetime(1969, 1, 1, tzinfo=UTC), None, datetime(2100, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
    "an_array": ("ARRAY<INT>", [[1, None, 3], None, []]),
    "a_vector": ("VECTOR(3)", [[0.0, -1.5, 3.0], None, [1.0, 2.0, 4.0]]),
    "a_map": ("MAP<STRING NOT NULL, BIGINT>", [[("a", 1), ("b", None)], None, []]),
    "a_row": ("ROW<x INT, y STRING>", [{"x": 1, "y": None}, None, {"x": None, "y": "z"}]),
}


ODD_NAMES = (
    "a b", "größe", "a.b", "a`b", "a\"b", "a,b", "a=b;c{}()", "a/b", "a\nb", "1a", "select", "😀",
    "_rowid", "_rowaddr", "_metadata", "_file", "_VALUE_KIND", "_SEQUENCE_NUMBER", "_hoodie_x", "rowkind",
)  # fmt: skip
"""Names that people have, and some that a format has for itself."""


class DdlContract(LakeSuite):
    every_type = EVERY_TYPE
    """Column -> (SQL type, three values). A format that refuses some takes them off here and declares it."""

    def test_the_lake_answers(self, lake: LakeStorage) -> None:
        lake.catalog().check()

    def test_create_makes_the_table_once_and_takes_it_the_next_time(self, lake: LakeStorage) -> None:
        table, catalog = self.table_info(), lake.catalog()
        catalog.check_descriptor(table.path, table.descriptor)
        assert not catalog.exists(table.path)
        assert catalog.create(table)
        assert not catalog.create(table)
        assert catalog.exists(table.path)
        assert catalog.table_id(table.path) is None
        catalog.validate(table)

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"columns": {**COLUMNS, "amount": "DOUBLE"}}, "amount"),
            ({"columns": {**COLUMNS, "more": "INT"}}, "more"),
            ({"columns": {"id": COLUMNS["id"], "name": COLUMNS["name"]}}, "amount"),
            ({"columns": {**COLUMNS, "name": "STRING NOT NULL"}}, "name"),
            ({"primary_key": ("id",)}, "id"),
        ],
        ids=["type", "column too many", "column too few", "nullability", "primary key"],
    )
    def test_a_lake_table_that_does_not_match_is_refused_with_a_diff(
        self, lake: LakeStorage, change: dict[str, Any], named: str
    ) -> None:
        catalog = lake.catalog()
        catalog.create(self.table_info())
        wrong = self.table_info(**change)
        with pytest.raises(LakeMismatch) as refused:
            catalog.create(wrong)
        assert named in refused.value.diff
        with pytest.raises(LakeMismatch):
            catalog.create(wrong, adopt=True)
        with pytest.raises(LakeMismatch):
            catalog.validate(wrong)

    @needs("partitions")
    def test_other_partition_keys_are_a_mismatch(self, lake: LakeStorage) -> None:
        columns = {**COLUMNS, "region": "STRING NOT NULL"}
        lake.catalog().create(self.table_info(columns=columns, partition_keys=("region",)))
        with pytest.raises(LakeMismatch):
            lake.catalog().create(self.table_info(columns=columns))

    def test_a_table_with_snapshots_is_taken_only_on_purpose(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        catalog = lake.catalog()
        assert catalog.table_id(log.table.path) == log.table.table_id
        for refused in (catalog.check_create, catalog.create):
            with pytest.raises(LakeNotEmpty):
                refused(self.table_info())
        adopted = self.table_info(table_id=log.table.table_id)
        catalog.check_create(adopted, adopt=True)
        assert not catalog.create(adopted, adopt=True)
        assert lake.open_reader(adopted).load_base().offsets == OffsetMap({B0: 1})

    def test_a_table_that_is_not_there_is_named(self, lake: LakeStorage) -> None:
        table = self.table_info("nowhere")
        lake.catalog().check()
        with pytest.raises(LakeTableGone, match="nowhere"):
            lake.catalog().validate(table)
        with pytest.raises(LakeTableGone):
            lake.open_reader(table).load_base()
        with pytest.raises(LakeTableGone):
            lake.open_maintenance(table).references()

    @needs("add_column")
    def test_an_added_column_is_null_in_old_rows(self, lake: LakeStorage) -> None:
        log = self.make_log(lake)
        log.append(B0, row(1))
        LakeRound.plan(lake, log).run()
        added = Column(name="later", type=parse_type("INT"))
        catalog = lake.catalog()
        catalog.add_columns(log.table, [added])
        catalog.add_columns(log.table, [added])
        descriptor = log.table.descriptor
        grown = log.table.with_descriptor(
            type(descriptor)(schema=descriptor.schema.with_added([added]), bucket_count=2)
        )
        catalog.validate(grown)
        log.table = grown
        log.append(B0, row(2, later=7))
        LakeRound.plan(lake, log).run()
        assert [r["later"] for _, _, r in lake_rows(lake, grown)] == [None, 7]

    @needs("add_column")
    def test_whether_a_change_can_be_made_is_known_before_it_is(self, lake: LakeStorage) -> None:
        table, catalog = self.table_info(), lake.catalog()
        catalog.check_create(table)
        catalog.create(table)
        added = Column(name="later", type=parse_type("INT"))
        catalog.check_alter(table, [added], {"some.key": "1"})
        catalog.validate(table)
        catalog.add_columns(table, [added])
        catalog.check_alter(table, [added], {"some.key": None})
        with pytest.raises(LakeMismatch, match="later"):
            catalog.check_alter(table, [Column(name="later", type=parse_type("STRING"))], {})
        with pytest.raises(LakeTableGone):
            catalog.check_alter(self.table_info("nowhere"), [added], {})

    def test_properties_are_set_and_removed_again(self, lake: LakeStorage) -> None:
        table, catalog = self.table_info(), lake.catalog()
        catalog.create(table)
        for changes in (
            {"some.key": "1", f"{lake.name}.write.metadata.delete-after-commit.enabled": "true"},
            {"some.key": None},
        ):
            catalog.set_properties(table, changes)
            catalog.set_properties(table, changes)
        catalog.validate(table)

    def test_every_type_comes_back_as_it_was_written(self, lake: LakeStorage) -> None:
        log = self.make_log(lake, columns={name: kind for name, (kind, _) in self.every_type.items()})
        log.append(B0, *({name: values[i] for name, (_, values) in self.every_type.items()} for i in range(3)))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected({B0: 3})

    def test_a_column_name_is_refused_in_words_or_comes_back(self, lake: LakeStorage) -> None:
        def is_taken(name: str) -> bool:
            table = self.table_info(columns={"id": "BIGINT NOT NULL", name: "INT"})
            try:
                lake.catalog().check_descriptor(table.path, table.descriptor)
            except InvalidTable as refused:
                return not refused.reason
            return True

        names = [name for name in ODD_NAMES if is_taken(name)]
        log = self.make_log(lake, columns={"id": "BIGINT NOT NULL", **dict.fromkeys(names, "INT")})
        log.append(B0, *({"id": n, **dict.fromkeys(names, n)} for n in range(2)))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected({B0: 2})
