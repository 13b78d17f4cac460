# SPDX-License-Identifier: Apache-2.0
"""What KV holds for a key: offset and time of the row's last change, the schema it was written with, the row.

Rows of an older schema decode with nulls in the columns that came later (columns are only ever added last).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.kv.structcodec import StructCodec, heads_of, make_binary, tails_of
from lakeward.model.arrow import to_arrow_schema
from lakeward.model.offsetset import Offsets
from lakeward.model.schema import Schema
from lakeward.model.systemcolumns import SNAPSHOT_FIELDS, TIMESTAMP_COLUMN_TYPE

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

    def decode(self, rows: StoredRows, columns: Sequence[str] | None = None) -> list[pa.Array]:
        """The named columns (default all) as the schema of now has them."""
        wanted = (
            list(range(len(self.arrow))) if columns is None else [self.arrow.get_field_index(name) for name in columns]
        )
        versions = np.unique(rows.schema_ids)
        if len(versions) <= 1:
            return self._decode_one(rows.bodies, int(versions[0]) if len(versions) else self.schema.schema_id, wanted)
        parts = [np.flatnonzero(rows.schema_ids == v) for v in versions]
        decoded = [
            self._decode_one(rows.bodies.take(pa.array(at)), int(v), wanted)
            for v, at in zip(versions, parts, strict=True)
        ]
        back = pa.array(np.argsort(np.concatenate(parts)))
        return [pa.concat_arrays(pieces).take(back) for pieces in zip(*decoded, strict=True)]

    def decode_batch(self, rows: StoredRows, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The named columns, then `__offset` and `__timestamp` of each row's last change. Raises `InvalidRequest`."""
        if unknown := [name for name in columns or () if name not in self.arrow.names]:
            raise InvalidRequest(
                what=f"columns {', '.join(unknown)}", reason=f"there are only {', '.join(self.arrow.names)}"
            )
        fields = list(self.arrow) if columns is None else [self.arrow.field(name) for name in columns]
        arrays = self.decode(rows, columns)
        arrays += [pa.array(rows.offsets), pa.array(rows.times).cast(TIMESTAMP_COLUMN_TYPE)]
        fields += SNAPSHOT_FIELDS
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def in_schema(self, rows: StoredRows) -> pa.BinaryArray:
        """The rows as they would be encoded now, so that they compare with new ones byte by byte."""
        if (rows.schema_ids == self.schema.schema_id).all():
            return rows.bodies
        return self._codec.encode(self.decode(rows))

    def _decode_one(self, bodies: pa.BinaryArray, schema_id: int, wanted: Sequence[int]) -> list[pa.Array]:
        codec, places = self._older[schema_id]
        at = [places.get(self.schema.columns[i].column_id) for i in wanted]
        known = iter(codec.decode(bodies, [place for place in at if place is not None]))
        return [
            pa.nulls(len(bodies), self.arrow.field(i).type) if place is None else next(known)
            for i, place in zip(wanted, at, strict=True)
        ]


def _places(schema: Schema) -> dict[int, int]:
    """Column id -> its place in rows of this schema."""
    return {column.column_id: place for place, column in enumerate(schema.columns)}
