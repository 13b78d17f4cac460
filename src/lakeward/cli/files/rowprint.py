# SPDX-License-Identifier: Apache-2.0
"""Rows to standard output: a table for people, JSON lines, CSV, or an Arrow stream."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import count
from typing import IO, TYPE_CHECKING, Any

from lakeward.cli.files.sqltext import spell_value
from lakeward.cli.output import print_rows

if TYPE_CHECKING:
    import pyarrow as pa


_WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}


class ReadFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


def write_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], format: ReadFormat) -> None:
    """All but `table` stream: memory stays constant."""
    if format is ReadFormat.ARROW:
        _write_arrow(schema, batches)
    elif format is ReadFormat.CSV:
        write_csv(sys.stdout.buffer, schema, batches)
    elif format is ReadFormat.JSON:
        names, converters = unique_names(schema.names), [plan_printer(f.type) for f in schema]
        for row in _tuples(batches):
            values = (convert(v) for convert, v in zip(converters, row, strict=True))
            print(json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False))
    else:
        rows = ([spell_value(v) for v in row] for row in _tuples(batches))
        print_rows(schema.names, rows, empty="no rows")


def _tuples(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """By place: a query may give two columns one name."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def unique_names(names: Sequence[str]) -> list[str]:
    """As they are; one that was there before gets a number: id, id_1."""
    taken: list[str] = []
    for name in names:
        numbered = (f"{name}_{n}" for n in count(1))
        free = name if name not in taken else next(n for n in numbered if n not in taken and n not in names)
        taken.append(free)
    return taken


def take(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; None takes all."""
    remaining = limit
    for batch in batches:
        if remaining is None:
            yield batch
            continue
        if remaining <= 0:
            return
        yield batch.slice(0, remaining)
        remaining -= batch.num_rows


def _write_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
        for batch in batches:
            out.write_batch(batch)


def write_csv(sink: IO[bytes], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """A null is an empty cell, an empty text is quoted: `write` tells them apart."""
    import pyarrow as pa
    import pyarrow.csv as csv

    kinds = [pa.string() if _needs_text(f.type) else f.type for f in schema]
    flat = pa.schema([pa.field(n, k) for n, k in zip(unique_names(schema.names), kinds, strict=True)])
    with csv.CSVWriter(sink, flat) as out:
        for batch in batches:
            columns = [_as_text(c) if _needs_text(c.type) else c for c in batch.columns]
            out.write_batch(pa.record_batch(columns, schema=flat))


def _needs_text(kind: pa.DataType) -> bool:
    """CSV has no lists, maps, bytes or intervals: they are written as in JSON."""
    import pyarrow as pa

    types = pa.types
    is_bytes = types.is_binary(kind) or types.is_fixed_size_binary(kind)
    return bool(types.is_nested(kind) or is_bytes or types.is_duration(kind) or types.is_interval(kind))


def _as_text(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    convert = plan_printer(column.type)
    texts = [None if v is None else convert(v) for v in column.to_pylist()]
    return pa.array([t if t is None or isinstance(t, str) else json.dumps(t) for t in texts], pa.string())


def plan_printer(kind: pa.DataType) -> Callable[[Any], Any]:
    """A function from a value of this type to the JSON that `client.jsonvalues` reads. Maps are lists of pairs, because
    the keys of a JSON object are text; numbers that JSON does not have are words."""
    import pyarrow as pa

    types = pa.types
    if types.is_floating(kind):
        return lambda v: v if v is None or math.isfinite(v) else _WORDS.get(v, "NaN")
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_large_binary(kind):
        return lambda v: None if v is None else v.hex()
    if types.is_duration(kind) or types.is_interval(kind):
        return lambda v: None if v is None else spell_value(v)
    if types.is_temporal(kind):
        return lambda v: None if v is None else v.isoformat()
    if types.is_decimal(kind):
        return lambda v: None if v is None else f"{v:f}"
    if types.is_map(kind):
        key, item = plan_printer(kind.key_type), plan_printer(kind.item_type)
        return lambda v: None if v is None else [[key(k), item(i)] for k, i in v]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        one = plan_printer(kind.value_type)
        return lambda v: None if v is None else [one(e) for e in v]
    if types.is_struct(kind):
        fields = {f.name: plan_printer(f.type) for f in kind}
        return lambda v: None if v is None else {n: convert(v[n]) for n, convert in fields.items()}
    return lambda v: v
