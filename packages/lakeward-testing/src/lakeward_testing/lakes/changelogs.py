# SPDX-License-Identifier: Apache-2.0
"""The contract of changelog sides: a log table with `__change_type` before the table's columns, which may grow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakeward.model import (
    CHANGE_TYPE,
    OFFSET,
    SNAPSHOT_FIELDS,
    TIMESTAMP,
    Column,
    Content,
    Int32Type,
    LogSplit,
    OffsetMap,
    OffsetRange,
    SideName,
    TableInfo,
    side_table,
    to_arrow_schema,
)
from lakeward.spi import LakeStorage, WriteTask
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, needs, row
from lakeward_testing.scripted_log import ScriptedLog

CHANGELOG = SideName("default", Content.CHANGELOG)
AT = datetime(2026, 11, 1, tzinfo=UTC)


class ChangelogContract(LakeSuite):
    @needs("appends", "add_column")
    def test_a_changelog_keeps_every_change_through_an_added_column(self, lake: LakeStorage) -> None:
        table = self.table_info(primary_key=("id",), bucket_count=1)
        lake.catalog().create(side_table(table, CHANGELOG))
        _append(lake, side_table(table, CHANGELOG), 0, [("insert", row(1)), ("update_before", row(1))])
        added = Column(name="z", type=Int32Type())
        lake.catalog().add_columns(side_table(table, CHANGELOG), [added])
        grown = table.with_descriptor(
            replace(table.descriptor, schema=table.schema.with_added([added])),
        )
        changes = side_table(grown, CHANGELOG)
        _append(lake, changes, 2, [("update_after", row(1, z=7)), ("delete", row(1, z=7))])
        lake.catalog().validate(changes)
        reader = lake.open_reader(changes)
        head = reader.load_snapshot()
        assert head is not None
        batches = list(reader.scan(head.snapshot_id, columns=[OFFSET, CHANGE_TYPE, "id", "z"]))
        rows = sorted(tuple(r.values()) for b in batches for r in b.to_pylist())
        images = [("insert", None), ("update_before", None), ("update_after", 7), ("delete", 7)]
        assert rows == [(n, word, 1, z) for n, (word, z) in enumerate(images)]
        assert lake.open_reader(changes).load_base().offsets == OffsetMap({B0: 4})


def _append(lake: LakeStorage, table: TableInfo, start: int, changes: list[tuple[str, dict[str, Any]]]) -> None:
    fields = pa.schema([*to_arrow_schema(table.schema), *SNAPSHOT_FIELDS])
    spelled = [
        {**values, CHANGE_TYPE: word, OFFSET: start + n, TIMESTAMP: AT} for n, (word, values) in enumerate(changes)
    ]
    stop = start + len(changes)
    turn = LakeRound.plan(lake, ScriptedLog(table))
    split = LogSplit(bucket=B0, range=OffsetRange(start, stop), index=0)
    writer = lake.open_writer(
        WriteTask(round_id=turn.round_id, table=table, split=split, attempt=0, handle=turn.handle)
    )
    writer.write(pa.RecordBatch.from_pylist(spelled, schema=fields))
    result = writer.complete()
    assert result is not None
    turn.results.append(result)
    turn.stops[B0] = stop
    turn.commit()
