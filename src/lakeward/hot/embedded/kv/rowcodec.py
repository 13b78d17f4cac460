# SPDX-License-Identifier: Apache-2.0
"""The value that KV stores for a key: offset and time of the row's last change, the schema it was written with, the
row. Columns of rows with an older schema are found by id; later columns have their default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.kv.structcodec import StructCodec, heads_of, make_binary, tails_of
from lakeward.model import (
    SNAPSHOT_FIELDS,
    TIMESTAMP_COLUMN_TYPE,
    Column,
    Offsets,
    Schema,
    fit_column,
    missing_values,
    to_arrow_field,
    to_arrow_schema,
)

HEADER = np.dtype([("offset", "<i8"), ("time", "<i8"), ("schema", "<i2")])


@dataclass(frozen=True)
class StoredRows:
    """Values of KV taken apart; `bodies` are rows encoded with the schema that `schema_ids` names."""

    offsets: Offsets
    times: npt.NDArray[np.int64]
    schema_ids: npt.NDArray[np.int16]
    bodies: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.offsets)

    def filter(self, keep: npt.NDArray[np.bool_]) -> StoredRows:
        if keep.all():
            return self
        return StoredRows(
            self.offsets[keep], self.times[keep], self.schema_ids[keep], self.bodies.filter(pa.array(keep))
        )


class RowCodec:
    """Encodes rows with the schema of now and decodes those of any schema up to it. `schemas` holds every version."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self.schema = schemas[max(schemas)]
        self.arrow = to_arrow_schema(self.schema)
        self._codec = StructCodec(self.arrow)
        self._older = {i: (StructCodec(list(to_arrow_schema(s))), _places(s)) for i, s in schemas.items()}

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The rows without header; `batch` has exactly the schema's columns, in order."""
        return self._codec.encode(batch.columns)

    def pack(self, bodies: pa.BinaryArray, offsets: Offsets, times: npt.NDArray[np.int64] | int) -> pa.BinaryArray:
        """KV values: each row with its header."""
        headers = np.empty(len(bodies), HEADER)
        headers["offset"], headers["time"], headers["schema"] = offsets, times, self.schema.schema_id
        heads = make_binary(np.arange(len(bodies) + 1, dtype=np.int64) * HEADER.itemsize, headers.view(np.uint8))
        return pc.binary_join_element_wise(heads, bodies, b"")

    def unpack(self, values: pa.BinaryArray) -> StoredRows:
        """KV values taken apart; none of them is null."""
        headers = np.frombuffer(heads_of(values, HEADER.itemsize), HEADER, len(values))
        bodies = tails_of(values, HEADER.itemsize)
        return StoredRows(
            headers["offset"].astype(np.int64),
            headers["time"].astype(np.int64),
            headers["schema"].astype(np.int16),
            bodies,
        )

    def decode(self, rows: StoredRows, columns: Sequence[Column] | None = None) -> list[pa.Array]:
        """These columns (default: all of today's), found by id, with their types; the default where a row is older."""
        columns = self.schema.columns if columns is None else columns
        versions = np.unique(rows.schema_ids)
        if len(versions) <= 1:
            return self._decode_one(rows.bodies, int(versions[0]) if len(versions) else self.schema.schema_id, columns)
        parts = [np.flatnonzero(rows.schema_ids == v) for v in versions]
        decoded = [
            self._decode_one(rows.bodies.take(pa.array(at)), int(v), columns)
            for v, at in zip(versions, parts, strict=True)
        ]
        back = pa.array(np.argsort(np.concatenate(parts)))
        return [pa.concat_arrays(pieces).take(back) for pieces in zip(*decoded, strict=True)]

    def decode_batch(
        self, rows: StoredRows, names: Sequence[str] | None = None, planned: Schema | None = None
    ) -> pa.RecordBatch:
        """The named columns of the reader's schema, which is `planned` or today's, then `__offset` and `__timestamp` of
        each row's last change. Raises `InvalidRequest`."""
        schema = self.schema if planned is None else planned
        if unknown := [name for name in names or () if name not in schema.names]:
            raise InvalidRequest(
                what=f"columns {', '.join(unknown)}", reason=f"there are only {', '.join(schema.names)}"
            )
        columns = schema.columns if names is None else [schema.column(name) for name in names]
        arrays = self.decode(rows, columns)
        arrays += [pa.array(rows.offsets), pa.array(rows.times).cast(TIMESTAMP_COLUMN_TYPE)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*map(to_arrow_field, columns), *SNAPSHOT_FIELDS]))

    def in_schema(self, rows: StoredRows) -> pa.BinaryArray:
        """The rows as they would be encoded now, so that they compare with new ones byte by byte."""
        if (rows.schema_ids == self.schema.schema_id).all():
            return rows.bodies
        return self._codec.encode(self.decode(rows))

    def _decode_one(self, bodies: pa.BinaryArray, schema_id: int, columns: Sequence[Column]) -> list[pa.Array]:
        codec, places = self._older[schema_id]
        at = [places.get(c.column_id) for c in columns]
        stored = iter(codec.decode(bodies, [place[0] for place in at if place is not None]))
        return [
            missing_values(to_arrow_field(c), len(bodies)) if place is None else fit_column(next(stored), place[1], c)
            for c, place in zip(columns, at, strict=True)
        ]


def _places(schema: Schema) -> dict[int, tuple[int, Column]]:
    """Column id -> its place in rows of this schema, and the column as it is there."""
    return {column.column_id: (place, column) for place, column in enumerate(schema.columns)}
