# SPDX-License-Identifier: Apache-2.0
"""One Spark task of a Kafka source: decodes the messages of a topic's partition, and sends them as a file of the next
group. The rows count once the driver has committed the group."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeward.client import connect
from lakeward.client.rows import fit_rows
from lakeward.config.options import SchemaContract
from lakeward.errors import InvalidRows, LakewardError, SourceStopped, to_wire
from lakeward.model import TableInfo, to_arrow_type
from lakeward.protocol import routes
from lakeward.protocol.quarantine import BadRow, QuarantineRows
from lakeward.protocol.sources import Frame, FrameKind
from lakeward.source.changes import UNSET, ChangedTable, ChangeSet
from lakeward.source.ingest import SourceDoor, write_steps
from lakeward.source.kafka.decode import BadMessage, Decoded
from lakeward.source.kafka.schema import load_decoder
from lakeward.spi.source import Step

RESULT = "topic string, partition int, next bigint, rows bigint, file string, size bigint, error string"
"""`error`: what stopped the task, as `to_wire` has it; it comes alone."""

METADATA = ("_topic", "_partition", "_offset", "_timestamp", "_headers")
CONTRACT = "table.schema.contract"


@dataclass(frozen=True)
class TaskPlan:
    """The input of a task; it travels to Spark's workers. `targets`: topic -> table."""

    server: str
    source: str
    epoch: int
    group: int
    config: Mapping[str, Any]
    targets: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        try:
            rows = self._run(batches)
        except LakewardError as error:
            rows = [{"error": json.dumps(to_wire(error))}]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_RESULT)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
        ends: dict[tuple[str, int], list[int]] = {}
        with connect(self.server) as client, tempfile.SpooledTemporaryFile(16 << 20) as spool:
            door = SourceDoor(client, self.source)
            door.epoch = self.epoch
            tables: dict[str, TopicTable] = {}
            for batch in batches:
                for topic, partition, part in _by_partition(batch):
                    if topic not in tables:
                        tables[topic] = TopicTable(self, client, self.targets[topic])
                    write_steps(spool, tables[topic].steps(topic, partition, part))
                    end = ends.setdefault((topic, partition), [0, 0])
                    end[0] = max(end[0], part.column("offset")[-1].as_py() + 1)
                    end[1] += part.num_rows
            size, file = spool.tell(), f"{self.group}-{uuid.uuid4().hex}"
            spool.seek(0)
            if size:
                door.send_file(file, spool)  # type: ignore[arg-type]
        return [
            {"topic": t, "partition": p, "next": n, "rows": count, "file": file, "size": 0 if i else size}
            for i, ((t, p), (n, count)) in enumerate(ends.items())
        ]


_RESULT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("next", pa.int64()),
        ("rows", pa.int64()),
        ("file", pa.string()),
        ("size", pa.int64()),
        ("error", pa.string()),
    ]
)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Spark gives a task one partition of a topic, in order; a plan that splits partitions gives several."""
    topics, partitions = batch.column("topic").to_pylist(), batch.column("partition").to_pylist()
    start = 0
    for at in range(1, batch.num_rows + 1):
        if at == batch.num_rows or (topics[at], partitions[at]) != (topics[start], partitions[start]):
            yield topics[start], partitions[start], batch.slice(start, at - start)
            start = at


class TopicTable:
    """The table of a topic, and how messages become its rows."""

    def __init__(self, plan: TaskPlan, client: Any, path: str) -> None:
        self.plan, self.client = plan, client
        self.contract = SchemaContract.STRICT
        self._use(client.show_table(path))

    def _use(self, table: TableInfo) -> None:
        config = self.plan.config
        self.table = table
        self.contract = SchemaContract(table.descriptor.properties.get(CONTRACT, SchemaContract.STRICT))
        columns = [c for c in table.schema.columns if not (config.get("metadata") and c.name in METADATA)]
        self.decoder = load_decoder(str(config["format"]))(columns, table.descriptor.primary_key, config)

    def steps(self, topic: str, partition: int, batch: pa.RecordBatch) -> Iterator[Step]:
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        decoded = self.decoder.decode(keys, values)
        if decoded.bad and self.contract is SchemaContract.EVOLVE:
            decoded = self._evolved(keys, values, decoded)
        rows, decoded = self._fitted(topic, partition, batch, decoded)
        if self.plan.config.get("metadata"):
            rows = self._with_metadata(rows, batch.take(pa.array(decoded.places, pa.int64())))
        if not self.table.is_pk:
            yield Step(frame=Frame(table=self.table.path, kind=FrameKind.APPEND), rows=rows)
        elif not (decoded.deletes or decoded.truncates or decoded.is_partial):
            yield Step(frame=Frame(table=self.table.path, kind=FrameKind.UPSERT), rows=rows)
        else:
            yield from self._changes(rows, decoded)

    def _fitted(self, topic: str, partition: int, batch: pa.RecordBatch, decoded: Decoded) -> tuple[pa.Table, Decoded]:
        """Rows in the table's types; bad ones go to its quarantine, or stop the source."""
        while True:
            try:
                rows = self._fit(decoded)
            except InvalidRows as error:
                decoded.bad.append(BadMessage(decoded.places[error.row], error.column, error.reason))
                if isinstance(decoded.rows, pa.Table):
                    decoded.rows = decoded.rows.to_pylist()
                del decoded.rows[error.row], decoded.places[error.row]
                continue
            if decoded.bad:
                self._refuse(topic, partition, batch, sorted(decoded.bad, key=lambda bad: bad.place))
                decoded.bad = []
            return rows, decoded

    def _fit(self, decoded: Decoded) -> pa.Table:
        names = [c.name for c in self.decoder.columns]
        if not decoded.is_partial:
            return fit_rows(decoded.rows, self.table, names)
        masks = {n: [row.get(n) is UNSET for row in decoded.rows] for n in names}
        plain = [{k: None if v is UNSET else v for k, v in row.items()} for row in decoded.rows]
        fitted = fit_rows(plain, self.table, names)
        for name, mask in masks.items():
            if any(mask):
                fitted = fitted.append_column(f"__unset_{name}", pa.array(mask))
        return fitted

    def _evolved(self, keys: list[Any], values: list[Any], decoded: Decoded) -> Decoded:
        names = set(self.table.schema.names)
        values_of_bad = [values[bad.place] for bad in decoded.bad if values[bad.place]]
        new = [c for c in self.decoder.message_columns(values_of_bad) if c.name not in names]
        if not new:
            return decoded
        path = routes.EVOLVE.format(table=self.table.path)
        self.client.server.ask("POST", path, {"columns": [c.to_json() for c in new]})
        self._use(self.client.show_table(str(self.table.path)))
        return self.decoder.decode(keys, values)

    def _refuse(self, topic: str, partition: int, batch: pa.RecordBatch, bad: Sequence[BadMessage]) -> None:
        """Raises `SourceStopped` unless the table has a quarantine."""
        offsets = batch.column("offset")
        first = bad[0]
        if self.contract is not SchemaContract.QUARANTINE:
            raise SourceStopped(
                source=self.plan.source,
                where=f"topic {topic}, partition {partition}, offset {offsets[first.place].as_py()}",
                reason=f"{f'column {first.column}: ' if first.column else ''}{first.reason}",
                advice=f"Keep such rows aside with `lakeward table alter {self.table.path} --set "
                f"{CONTRACT}=quarantine`, or add columns for them with {CONTRACT}=evolve, and ingest again",
            )
        values = batch.column("value")
        operation = "upsert" if self.table.is_pk else "append"
        for message in bad:  # each under a key of its own: another micro-batch may have other neighbours
            row = BadRow(
                number=offsets[message.place].as_py(),
                row=(values[message.place].as_py() or b"").decode(errors="backslashreplace"),
                reason=message.reason,
                column=message.column,
            )
            key = f"{self.plan.source}/{topic}/{partition}/{row.number}"
            rows = QuarantineRows(source=f"kafka {topic}[{partition}]", operation=operation, key=key, rows=(row,))
            self.client.server.ask("POST", routes.QUARANTINE.format(table=self.table.path), rows)

    def _with_metadata(self, rows: pa.Table, batch: pa.RecordBatch) -> pa.Table:
        kinds = {c.name: to_arrow_type(c.type) for c in self.table.schema.columns}
        headers = batch.column("headers") if "headers" in batch.schema.names else pa.nulls(batch.num_rows)
        maps = [{h["key"]: h["value"] for h in row or ()} for row in headers.to_pylist()]
        cells = {
            "_topic": batch.column("topic"),
            "_partition": batch.column("partition"),
            "_offset": batch.column("offset"),
            "_timestamp": batch.column("timestamp"),
            "_headers": pa.array([list(m.items()) for m in maps], kinds["_headers"]),
        }
        for name in METADATA:
            rows = rows.append_column(name, pa.chunked_array([cells[name]]).cast(kinds[name]))
        return rows

    def _changes(self, rows: pa.Table, decoded: Decoded) -> Iterator[Step]:
        """Upserts, partial ones, deletes and truncates, in the order of the messages for each key."""
        names = tuple(n for n in rows.column_names if not n.startswith("__unset_"))
        key = tuple(self.table.descriptor.primary_key)
        marks = {n: rows.column(f"__unset_{n}").to_pylist() for n in names if f"__unset_{n}" in rows.column_names}

        def to_arrow(wanted: tuple[str, ...], changed: Sequence[Sequence[Any]]) -> pa.Table:
            if wanted == key:  # values of keys alone
                return fit_rows(
                    [{n: getattr(v, "value", v) for n, v in zip(key, row, strict=True)} for row in changed],
                    self.table,
                    key,
                )
            return rows.select(list(wanted)).take(pa.array([row[wanted.index(key[0])].place for row in changed]))

        keys = list(zip(*(rows.column(n).to_pylist() for n in key), strict=True))
        table = ChangedTable(self.table.path, names, key, to_arrow)
        changes = ChangeSet()
        upserts = {place: i for i, place in enumerate(decoded.places)}
        for place in sorted({*upserts, *decoded.deletes, *decoded.truncates}):
            if place in decoded.truncates:
                changes.truncate(table)
            elif place in decoded.deletes:
                changes.delete(table, tuple(decoded.deletes[place][n] for n in key))
            else:
                changes.upsert(table, _marked(names, key, keys[upserts[place]], marks, upserts[place]))
            changes.end_transaction()
            if changes.is_due:
                yield from changes.steps()
        yield from changes.steps()


class _Cell:
    """A value of row `place`, equal to others by the value alone."""

    __slots__ = ("place", "value")

    def __init__(self, place: int, value: Any) -> None:
        self.place, self.value = place, value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, _Cell) else other))

    def __hash__(self) -> int:
        return hash(self.value)


def _marked(
    names: Sequence[str], key: Sequence[str], values: Sequence[Any], marks: Mapping[str, Any], row: int
) -> list[Any]:
    cells = dict(zip(key, values, strict=True))
    return [UNSET if name in marks and marks[name][row] else _Cell(row, cells.get(name)) for name in names]
