# SPDX-License-Identifier: Apache-2.0
"""What the parts of the lake contract share: the fixtures, tables, hooks a plugin's test fills in, and
declared gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, TypeVar

import pytest

from lakeward.model import (
    Bucket,
    Column,
    Schema,
    SnapshotId,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.spi import Lack, LakeStorage, SupportsRewrite, SupportsSnapshotNames
from lakeward_testing.faults import Faults
from lakeward_testing.scripted_log import Row, ScriptedLog

Test = TypeVar("Test", bound=Callable[..., None])

B0, B1 = Bucket("", 0), Bucket("", 1)
COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "amount": "DECIMAL(10, 2)"}


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Marks a test with the capabilities it takes; a lake without one must fail it, which is then expected."""

    def mark(test: Test) -> Test:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


class LakeSuite:
    """A plugin's test class gives the fixture `lake` and the hooks that stand for other engines."""

    gaps: Mapping[str, str] = {}
    """Test name -> why this plugin does not pass it. Strict: a gap that closes must be taken off."""

    @pytest.fixture
    def lake(self) -> Iterator[LakeStorage]:
        raise NotImplementedError("give a fresh, empty lake")

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        """Another engine commits to main, as compaction or a property change would; no row changes, the tag stays."""
        raise NotImplementedError

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        """Another engine rewrites all data files: live rows into new files, deletes applied,
        offsets kept as a column.
        """
        raise NotImplementedError

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        """Another engine inserts rows into bucket 0 of a table without partitions; each says its `__offset`."""
        raise NotImplementedError

    def foreign_delete(self, lake: LakeStorage, table: TableInfo, id: int) -> bool:
        """Another engine deletes the rows with this id. False, the default: no engine at hand does."""
        return False

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        """Another engine expires every snapshot but main's head and what a tag keeps."""
        raise NotImplementedError

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        """Another engine moves main back to this snapshot."""
        raise NotImplementedError

    def break_tag(self, lake: LakeStorage, table: TableInfo) -> None:
        """Empties the file in which the plugin keeps its tag, as a full disk may. The default: it has no such file."""

    @contextmanager
    def lost_answer(self, *, took_effect: bool) -> Iterator[None]:
        """While this holds, the answer to a commit is lost. The default: committers treat a fault injected at
        `lake.before-commit` and `lake.after-commit` as an answer that did not come."""
        with Faults() as faults:
            faults.arm("lake.after-commit" if took_effect else "lake.before-commit")
            yield

    @pytest.fixture(autouse=True)
    def _declared_gaps(self, request: pytest.FixtureRequest, lake: LakeStorage) -> None:
        name = request.node.originalname
        missing = [c for c in getattr(request.function, "needs", ()) if not can(lake, c, self.table_info("probe"))]
        reason = f"{lake.name} has no {', '.join(missing)}" if missing else self.gaps.get(name)
        if reason:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    def table_info(self, name: str = "t", **options: Any) -> TableInfo:
        """A table that is nowhere yet. `columns` maps names to SQL types; the rest goes to the descriptor."""
        columns, count = options.pop("columns", COLUMNS), options.pop("bucket_count", 2)
        table_id: TableId = options.pop("table_id", None) or new_table_id()
        schema = Schema(columns=tuple(Column(name=n, type=parse_type(t)) for n, t in columns.items()))
        return TableInfo(
            path=TablePath("contract", name),
            table_id=table_id,
            descriptor=TableDescriptor(schema=schema, bucket_count=count, **options),
        )

    def make_log(self, lake: LakeStorage, name: str = "t", **options: Any) -> ScriptedLog:
        """A table in the lake, with an empty log to fill."""
        table = self.table_info(name, **options)
        lake.catalog().create(table)
        return ScriptedLog(table)


def can(lake: LakeStorage, capability: str, table: TableInfo) -> bool:
    """A capability by its field's name; `equality` and `positions` ask for a delete encoding. `table`: one that
    may be made."""
    if capability in ("equality", "positions", "native"):
        return capability in {str(e) for e in lake.capabilities.delete_encodings}
    if capability == "rewrites":
        return isinstance(lake, SupportsRewrite)
    if capability == "snapshot_names":
        lake.catalog().create(table)
        return isinstance(lake.open_maintenance(table), SupportsSnapshotNames)
    if capability in list(Lack):
        return capability not in lake.capabilities.lacks
    return bool(getattr(lake.capabilities, capability))


def row(number: int, name: str | None = None, **more: Any) -> Row:
    return {"id": number, "name": name if name is not None else f"row {number}", "amount": Decimal(number) / 4, **more}
