# SPDX-License-Identifier: Apache-2.0
"""ALTER TABLE as text: every kind of change, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import InvalidRequest
from lakeward.model import Column, parse_type
from lakeward.protocol.alterstatement import is_alter, parse_alter
from lakeward.protocol.tables import AlterTable


def added(name: str, kind: str, comment: str | None = None) -> dict[str, Any]:
    return Column(name=name, type=parse_type(kind), comment=comment).to_json()


@pytest.mark.parametrize(
    ("actions", "change"),
    [
        ("ADD COLUMN e STRING", AlterTable(add_columns=(added("e", "STRING"),))),
        (
            "add e decimal(8, 2) comment 'it''s' after `the id`, add f ROW<a INT, b ARRAY<INT>> first;",
            AlterTable(
                add_columns=(added("e", "DECIMAL(8, 2)", "it's"), added("f", "ROW<a INT, b ARRAY<INT>>")),
                after={"e": "the id", "f": ""},
            ),
        ),
        ('RENAME COLUMN a TO "b b", RENAME c TO d', AlterTable(rename_columns={"a": "b b", "c": "d"})),
        ("DROP COLUMN a, DROP b", AlterTable(drop_columns=("a", "b"))),
        ("ALTER COLUMN a TYPE BIGINT", AlterTable(widen_columns={"a": "BIGINT"})),
        ("ALTER a SET DATA TYPE double", AlterTable(widen_columns={"a": "DOUBLE"})),
        ("MODIFY COLUMN a DROP NOT NULL", AlterTable(nullable_columns=("a",))),
        ("ALTER COLUMN a COMMENT 'x', ALTER b COMMENT ''", AlterTable(column_comments={"a": "x", "b": None})),
        ("ALTER COLUMN a FIRST, ALTER COLUMN b AFTER c", AlterTable(after={"a": "", "b": "c"})),
        ("SET ('k' = 'v', 'l'='w'), RESET ('m')", AlterTable(properties={"k": "v", "l": "w", "m": None})),
    ],
)
def test_each_kind_of_change(actions: str, change: AlterTable) -> None:
    parsed = parse_alter(f"ALTER TABLE shop.goods {actions}")
    assert (parsed.path, parsed.change) == ("shop.goods", change)


def test_explain_is_a_dry_run() -> None:
    assert parse_alter("explain\nalter table shop.goods drop a").change.dry_run
    assert is_alter("  EXPLAIN ALTER TABLE x.y DROP a")
    assert not is_alter("SELECT 'ALTER TABLE' FROM x.y")
    assert not is_alter("ALTERTABLE x.y")


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE goods DROP a",
        "ALTER TABLE shop.goods",
        "ALTER TABLE shop.goods FROB a",
        "ALTER TABLE shop.goods DROP a b",
        "ALTER TABLE shop.goods DROP 'a'",
        "ALTER TABLE shop.goods ADD a",
        "ALTER TABLE shop.goods ADD a NOTATYPE",
        "ALTER TABLE shop.goods ADD a INT DEFAULT now()",
        "ALTER TABLE shop.goods RENAME a TO b, RENAME a TO c",
        "ALTER TABLE shop.goods SET (k = 'v')",
        "ALTER TABLE shop.goods DROP a; DROP TABLE shop.goods",
    ],
)
def test_what_is_not_such_a_statement_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_alter(text)


def test_a_table_keeps_its_name_and_the_refusal_says_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match=r"a table's name is fixed .*lakeward write NEW"):
        parse_alter("ALTER TABLE shop.orders RENAME TO shop.sales")
