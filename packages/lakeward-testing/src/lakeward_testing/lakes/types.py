# SPDX-License-Identifier: Apache-2.0
"""The lake contract's types: what a table may be made with, rounds can write."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import RowNotEncoded
from lakeward.model.schema import Column
from lakeward.model.sqltype import parse_type
from lakeward.model.table import TableDescriptor
from lakeward.spi.lake import LakeStorage
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, needs
from lakeward_testing.scripted_log import ScriptedLog

_LEAVES = (
    "ROW<a BIGINT NOT NULL, b DECIMAL(10, 2) NOT NULL, c TIMESTAMP(6) NOT NULL, d BYTES NOT NULL, e BOOLEAN NOT NULL, "
    "f TINYINT NOT NULL, g CHAR(2) NOT NULL, h DATE NOT NULL, i DOUBLE NOT NULL>"
)
STRICT: dict[str, tuple[str, list[Any]]] = {
    "flat": ("ROW<n1 INT NOT NULL, n2 STRING>", [{"n1": 1, "n2": None}]),
    "every leaf": (_LEAVES, []),
    "binary": ("ROW<a BINARY(2) NOT NULL>", [{"a": b"ab"}]),
    "row in a row": ("ROW<x ROW<a INT NOT NULL> NOT NULL, y INT>", [{"x": {"a": 1}, "y": None}]),
    "nullable row in a row": ("ROW<x ROW<a INT NOT NULL>, y INT NOT NULL>", [{"x": None, "y": 1}]),
    "array in a row": ("ROW<x ARRAY<INT NOT NULL> NOT NULL>", [{"x": [1]}, {"x": []}]),
    "map in a row": ("ROW<x MAP<STRING NOT NULL, INT NOT NULL> NOT NULL>", [{"x": [("k", 1)]}, {"x": []}]),
    "rows in an array": ("ARRAY<ROW<a INT NOT NULL>>", [[None, {"a": 1}], []]),
    "whole rows in an array": ("ARRAY<ROW<a INT NOT NULL> NOT NULL>", [[{"a": 1}], []]),
    "rows in a map": ("MAP<STRING NOT NULL, ROW<a INT NOT NULL, b STRING>>", [[("k", None), ("l", {"a": 1, "b": ""})]]),
}
"""Types with a NOT NULL below the top, and values of them beside null."""


class TypeContract(LakeSuite):
    @pytest.mark.parametrize("shape", STRICT)
    @pytest.mark.parametrize("primary_key", [(), ("id",)], ids=["log", "pk"])
    def test_below_a_null_not_null_means_nothing(
        self, lake: LakeStorage, shape: str, primary_key: tuple[str, ...]
    ) -> None:
        """A batch of nulls alone, one of both, a column that came later; and all of it compacted."""
        if primary_key and not lake.capabilities.upserts:
            return
        kind, values = STRICT[shape]
        log = self.make_log(lake, columns={"id": "BIGINT NOT NULL", "r": kind}, primary_key=primary_key)
        put = log.upsert if primary_key else log.append
        put(B0, {"id": 1, "r": None}, {"id": 2, "r": None})
        LakeRound.plan(lake, log).run()
        put(
            B0,
            {"id": 3, "r": None},
            *({"id": 4 + n, "r": value} for n, value in enumerate(values)),
            {"id": 9, "r": None},
        )
        LakeRound.plan(lake, log).run()
        if lake.capabilities.add_column:
            self._add_column(lake, log, Column(name="later", type=parse_type(kind)))
            put(B0, {"id": 20, "r": None, "later": None}, *({"id": 21 + n, "later": v} for n, v in enumerate(values)))
            LakeRound.plan(lake, log).run()
        expected = [(b, o, {n: row.get(n) for n in log.table.schema.names}) for b, o, row in log.expected(log.ends())]
        assert lake_rows(lake, log.table) == expected
        if lake.capabilities.rewrites:
            LakeRewrite(lake=lake, table=log.table).run()
            assert lake_rows(lake, log.table) == expected

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

    def _add_column(self, lake: LakeStorage, log: ScriptedLog, added: Column) -> None:
        lake.catalog().add_columns(log.table, [added])
        old = log.table.descriptor
        log.table = log.table.with_descriptor(
            TableDescriptor(
                schema=old.schema.with_added([added]), bucket_count=old.bucket_count, primary_key=old.primary_key
            )
        )
