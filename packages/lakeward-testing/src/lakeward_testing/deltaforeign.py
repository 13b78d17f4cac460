# SPDX-License-Identifier: Apache-2.0
"""What other engines may do to a Delta table, as tests need it: commit, optimize, insert, clean the log up, restore."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.lake.delta.columns import file_schema, parse_schema_string, table_schema
from lakeward.lake.delta.meta.actions import Action, AddFile, DeltaTableState
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.delta.rows import DeltaFileRows
from lakeward.lake.delta.stats import file_stats
from lakeward.model import BUCKET, OFFSET, SnapshotId


class DeltaForeignEngine:
    """Commits carry no keys of ours."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log

    def touch(self) -> None:
        self._commit(self._log.load(), "WRITE", [])

    def optimize(self) -> None:
        """Live rows of each partition into one file beside ours, in descending offset order; vectors are gone."""
        self._rewrite("OPTIMIZE", None)

    def delete(self, keep: pc.Expression) -> None:
        """Only these rows stay; files are written anew, as most engines delete."""
        self._rewrite("DELETE", keep)

    def _rewrite(self, operation: str, keep: pc.Expression | None) -> None:
        state, changes_data = self._log.load(), keep is not None
        schema = table_schema(parse_schema_string(state.metadata["schemaString"]))
        rows = DeltaFileRows(self._log.files, self._log.root, self._log.table, schema)
        by_partition: dict[tuple[tuple[str, str], ...], list[pa.Table]] = {}
        for file in state.files.values():
            values = tuple(sorted(file.action["partitionValues"].items()))
            by_partition.setdefault(values, []).extend(live for _, live in rows.live(file, schema.names))
        actions = [f.removal(_now_ms(), changes_data=changes_data) for f in state.files.values()]
        for values, parts in by_partition.items():
            whole = pa.concat_tables(parts).sort_by([(OFFSET, "descending")])
            whole = whole if keep is None else whole.filter(keep)
            actions += self._write(state, whole, dict(values), changes_data=changes_data) if whole.num_rows else []
        self._commit(state, operation, actions)

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Into bucket 0 of a table without partitions; each says its offset."""
        state = self._log.load()
        schema = table_schema(parse_schema_string(state.metadata["schemaString"]))
        table = pa.Table.from_pylist([{"__timestamp": 0, BUCKET: 0, **r} for r in rows], schema=schema)
        self._commit(state, "WRITE", self._write(state, table, {BUCKET: "0"}, changes_data=True))

    def clean_log(self) -> None:
        """A checkpoint at the head, and no entry before it."""
        state = self._log.load()
        self._log.checkpoint(state)
        self._log.clean(state.version)

    def restore(self, snapshot_id: SnapshotId) -> None:
        state, then = self._log.load(), self._log.load(int(snapshot_id))
        gone = [f for k, f in state.files.items() if k not in then.files]
        back = [f for k, f in then.files.items() if k not in state.files]
        actions = [f.removal(_now_ms(), changes_data=True) for f in gone] + [{"add": f.action} for f in back]
        self._commit(state, "RESTORE", actions, {"version": snapshot_id})

    def _write(
        self, state: DeltaTableState, rows: pa.Table, values: dict[str, str], *, changes_data: bool
    ) -> list[Action]:
        """As most engines do: partition values are in the log alone."""
        schema = pa.schema([f for f in file_schema(rows.schema) if f.name not in state.partition_columns])
        name = f"part-{uuid.uuid4()}.zstd.parquet"
        with self._log.files.open_output(f"{self._log.root}/{name}") as sink:
            with pq.ParquetWriter(sink, schema, store_schema=False) as output:
                output.write_table(rows.select(schema.names).cast(schema))
            size = sink.tell()
        add = {
            "path": name,
            "partitionValues": values,
            "size": size,
            "modificationTime": _now_ms(),
            "dataChange": changes_data,
            "stats": file_stats(output.writer.metadata, ()),
        }
        return [{"add": AddFile(add).action}]

    def _commit(
        self,
        state: DeltaTableState,
        operation: str,
        actions: Sequence[Action],
        parameters: dict[str, str] | None = None,
    ) -> None:
        info = {"timestamp": _now_ms(), "operation": operation, "operationParameters": parameters or {}}
        assert self._log.append(state.version + 1, [{"commitInfo": info}, *actions])


def _now_ms() -> int:
    return int(time.time() * 1000)
