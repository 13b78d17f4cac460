# SPDX-License-Identifier: Apache-2.0
"""The lake contract's types: what a table may be made with, rounds can write."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from lakeward.errors import InvalidInput, RowNotEncoded
from lakeward.model import Bucket, Column, check_new_table, parse_type
from lakeward.spi import Lack, LakeStorage, SupportsRewrite
from lakeward_testing.lakes.ddl import EVERY_TYPE
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, needs
from lakeward_testing.scripted_log import ScriptedLog

_LEAVES = (
    "ROW<a BIGINT NOT NULL, b DECIMAL(10, 2) NOT NULL, c TIMESTAMP(6) NOT NULL, d BYTES NOT NULL, e BOOLEAN NOT NULL, "
    "f TINYINT NOT NULL, g CHAR(2) NOT NULL, h DATE NOT NULL, i DOUBLE NOT NULL>"
)
_LEAF = {
    "a": 1,
    "b": Decimal("1.25"),
    "c": datetime(2026, 1, 1),
    "d": b"",
    "e": False,
    "f": -1,
    "g": "ab",
    "h": date(2026, 1, 1),
    "i": 0.5,
}
STRICT: dict[str, tuple[str, list[Any]]] = {
    "flat": ("ROW<n1 INT NOT NULL, n2 STRING>", [{"n1": 1, "n2": None}]),
    "every_leaf": (_LEAVES, [_LEAF]),
    "binary": ("ROW<a BINARY(2) NOT NULL>", [{"a": b"ab"}]),
    "row_in_a_row": ("ROW<x ROW<a INT NOT NULL> NOT NULL, y INT>", [{"x": {"a": 1}, "y": None}]),
    "nullable_row_in_a_row": ("ROW<x ROW<a INT NOT NULL>, y INT NOT NULL>", [{"x": None, "y": 1}]),
    "array_in_a_row": ("ROW<x ARRAY<INT NOT NULL> NOT NULL>", [{"x": [1]}, {"x": []}]),
    "map_in_a_row": ("ROW<x MAP<STRING NOT NULL, INT NOT NULL> NOT NULL>", [{"x": [("k", 1)]}, {"x": []}]),
    "rows_in_an_array": ("ARRAY<ROW<a INT NOT NULL>>", [[None, {"a": 1}], []]),
    "whole_rows_in_an_array": ("ARRAY<ROW<a INT NOT NULL> NOT NULL>", [[{"a": 1}], []]),
    "rows_in_a_map": ("MAP<STRING NOT NULL, ROW<a INT NOT NULL, b STRING>>", [[("k", None), ("l", {"a": 1, "b": ""})]]),
}
"""Types with a NOT NULL below the top, and values of them beside null."""


ROW_IN_ROW = {"x": 1, "y": {"z": 0.5, "w": "a"}}

ODD_TEXTS = (
    "",
    "__empty__",
    "__null__",
    "null",
    " ",
    ",",
    ":",
    "x",
    "x,b",
    "x,b:",
    "x,b:y",
    "y,b:z",
    "b:z",
    "z",
    "a:x",
)
"""Texts that a format may join, mark or take apart where it makes one text of a key."""


class TypeContract(LakeSuite):
    refuses_keys = False
    """Are there texts that the format takes for another key's? They are refused by name."""

    @pytest.mark.parametrize("primary_key", [("k",), ("k", "id")], ids=["one column", "two columns"])
    def test_a_type_of_a_key_is_refused_or_can_be_written(
        self, lake: LakeStorage, primary_key: tuple[str, ...]
    ) -> None:
        """Refused when the table is made, not by the first round."""
        if lake.capabilities.upserts:
            for name, (kind, (first, _, second)) in EVERY_TYPE.items():
                columns = {"id": "INT NOT NULL", "k": f"{kind} NOT NULL", "v": "INT"}
                log = self._make_if_taken(lake, kind, name, columns=columns, primary_key=primary_key)
                if log is None:
                    continue
                for v in (1, 2):
                    log.upsert(B0, {"id": 1, "k": first, "v": v}, {"id": 2, "k": second, "v": v})
                    LakeRound.plan(lake, log).run()
                assert lake_rows(lake, log.table) == log.expected(log.ends()), name

    @needs("partitions")
    def test_a_type_of_a_partition_key_is_refused_or_can_be_written(self, lake: LakeStorage) -> None:
        for name, (kind, (first, _, second)) in EVERY_TYPE.items():
            columns = {"id": "INT NOT NULL", "p": f"{kind} NOT NULL"}
            log = self._make_if_taken(lake, kind, name, columns=columns, partition_keys=("p",))
            if log is not None:
                for value in (first or second, second):
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    log.append(Bucket(text, 0), {"id": 1, "p": value})
                LakeRound.plan(lake, log).run()
                rows = [row for _, _, row in lake_rows(lake, log.table)]
                assert rows == [row for _, _, row in log.expected(log.ends())], name

    def test_a_type_of_a_column_is_refused_or_can_be_written(self, lake: LakeStorage) -> None:
        """Of a new table and of one that is altered; NOT NULL, too."""
        taken, whole = {}, {"id": "BIGINT NOT NULL"}
        for name, (kind, _) in (*EVERY_TYPE.items(), *STRICT.items()):
            table = self.table_info(columns={**whole, name: kind})
            try:
                lake.catalog().check_descriptor(table.path, table.descriptor)
            except InvalidInput as refused:
                assert parse_type(kind).keyword in str(refused)  # noqa: PT017
            else:
                taken[name] = kind
        log = self.make_log(lake, columns={**whole, **{n: f"{k} NOT NULL" for n, k in taken.items()}})
        shown = {name: next(v for v in (EVERY_TYPE | STRICT)[name][1] if v is not None) for name in taken}
        log.append(B0, {"id": 1, **shown})
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        if Lack.ADD_COLUMN not in lake.capabilities.lacks:
            log = self.make_log(lake, "altered", columns=whole)
            added = [Column(name=n, type=parse_type(k)) for n, k in taken.items()]
            lake.catalog().check_alter(log.table, added, {})
            self._add_columns(lake, log, *added)
            log.append(B0, {"id": 1, **shown}, {"id": 2, **dict.fromkeys(taken)})
            LakeRound.plan(lake, log).run()
            assert lake_rows(lake, log.table) == log.expected(log.ends())

    @needs("upserts")
    @pytest.mark.parametrize("key", [("a",), ("a", "b")], ids=["one column", "two columns"])
    def test_different_keys_are_different_rows(self, lake: LakeStorage, key: tuple[str, ...]) -> None:
        """What the format would take for another key is refused by name; no two of the others become one row."""
        columns = {"a": "STRING NOT NULL", "b": "STRING NOT NULL", "v": "INT"}
        log, refused = self.make_log(lake, columns=columns, primary_key=key), 0
        rows = [{"a": a, "b": b} for a in ODD_TEXTS for b in (ODD_TEXTS if len(key) > 1 else ("",))]
        while True:
            log.upsert(B0, *({**row, "v": n} for n, row in enumerate(rows)))
            try:
                LakeRound.plan(lake, log).run()
            except RowNotEncoded as error:
                del rows[int(error.offset)]
                log, refused = ScriptedLog(log.table), refused + 1
            else:
                break
        assert bool(refused) == self.refuses_keys
        log.upsert(B0, {"a": "__empty__", "b": "deleted", "v": 0})
        log.delete(B0, {"a": "__empty__", "b": "deleted"})
        log.upsert(B0, *({**row, "v": -n} for n, row in enumerate(rows)))
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def _make_if_taken(self, lake: LakeStorage, kind: str, name: str, **options: Any) -> ScriptedLog | None:
        """None: the type is refused, in words."""
        table = self.table_info(name, bucket_count=1, **options)
        try:
            check_new_table(str(table.path), table.descriptor)
            lake.catalog().check_descriptor(table.path, table.descriptor)
        except InvalidInput as refused:
            assert parse_type(kind).keyword in str(refused)  # noqa: PT017
            return None
        lake.catalog().create(table)
        return ScriptedLog(table)

    @pytest.mark.parametrize("primary_key", [(), ("id",)], ids=["log", "pk"])
    def test_below_a_null_not_null_means_nothing(self, lake: LakeStorage, primary_key: tuple[str, ...]) -> None:
        """A batch of nulls alone, one of both, columns that came later; and all of it compacted."""
        if primary_key and not lake.capabilities.upserts:
            return
        columns = {name: kind for name, (kind, _) in STRICT.items()}
        log = self.make_log(lake, columns={"id": "BIGINT NOT NULL", **columns}, primary_key=primary_key)
        put = log.upsert if primary_key else log.append
        nulls = dict.fromkeys(columns)
        put(B0, {"id": 1, **nulls}, {"id": 2, **nulls})
        LakeRound.plan(lake, log).run()
        mixed = [
            {n: (values[at] if at < len(values) else None) for n, (_, values) in STRICT.items()} for at in range(3)
        ]
        put(B0, *({"id": 3 + at, **row} for at, row in enumerate(mixed)))
        LakeRound.plan(lake, log).run()
        if Lack.ADD_COLUMN not in lake.capabilities.lacks:
            later = [Column(name=f"later_{n}", type=parse_type(kind)) for n, kind in columns.items()]
            self._add_columns(lake, log, *later)
            put(
                B0,
                *({"id": 6 + at, **row, **{f"later_{n}": v for n, v in row.items()}} for at, row in enumerate(mixed)),
            )
            LakeRound.plan(lake, log).run()
        expected = [(b, o, {n: row.get(n) for n in log.table.schema.names}) for b, o, row in log.expected(log.ends())]
        assert lake_rows(lake, log.table) == expected
        if isinstance(lake, SupportsRewrite):
            LakeRewrite(lake=lake, table=log.table).run()
            assert lake_rows(lake, log.table) == expected

    @pytest.mark.parametrize("primary_key", [(), ("id",)], ids=["log", "pk"])
    def test_a_part_of_a_batch_is_written(self, lake: LakeStorage, primary_key: tuple[str, ...]) -> None:
        """Arrays that begin in the middle of their memory, as a large batch that is cut has them."""
        if primary_key and not lake.capabilities.upserts:
            return
        nested = {
            **STRICT,
            "rows_in_rows": ("ROW<x INT, y ROW<z DOUBLE, w STRING>>", [ROW_IN_ROW, {"x": 2, "y": None}]),
        }
        log = self.make_log(
            lake, columns={"id": "BIGINT NOT NULL", **{n: k for n, (k, _) in nested.items()}}, primary_key=primary_key
        )
        rows = [
            {"id": at, **{n: (values[at] if at < len(values) else None) for n, (_, values) in nested.items()}}
            for at in range(3)
        ]
        (log.upsert if primary_key else log.append)(B0, *rows)
        LakeRound.plan(lake, log).write(B0, sliced=True).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def test_a_value_that_does_not_fit_is_named(self, lake: LakeStorage) -> None:
        """It never comes through a client; from a hot store with a fault it might. Not "the lake does not answer"."""
        log = self.make_log(lake, columns={"id": "BIGINT NOT NULL", "r": "ROW<a INT NOT NULL>"})
        log.append(B0, {"id": 1, "r": None}, {"id": 2, "r": {"a": 1}}, {"id": 3, "r": {"a": None}})
        with pytest.raises(RowNotEncoded) as failed:
            LakeRound.plan(lake, log).run()
        error = failed.value
        assert (error.table, error.column, error.bucket, error.offset) == ("contract.t", "r", "0", "2")
        assert not error.retryable

    @needs("upserts")
    def test_a_value_that_does_not_fit_may_be_written_again(self, lake: LakeStorage) -> None:
        """The way out that the error names."""
        log = self.make_log(lake, columns={"id": "BIGINT NOT NULL", "r": "ROW<a INT NOT NULL>"}, primary_key=("id",))
        log.upsert(B0, {"id": 1, "r": {"a": None}}, {"id": 2, "r": {"a": None}})
        with pytest.raises(RowNotEncoded):
            LakeRound.plan(lake, log).run()
        log.upsert(B0, {"id": 1, "r": {"a": 1}})
        log.delete(B0, {"id": 2})
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())

    def _add_columns(self, lake: LakeStorage, log: ScriptedLog, *added: Column) -> None:
        lake.catalog().add_columns(log.table, added)
        old = log.table.descriptor
        log.table = log.table.with_descriptor(replace(old, schema=old.schema.with_added(added)))
