# SPDX-License-Identifier: Apache-2.0
"""Keys to bytes, in bulk: equal keys give equal bytes, different ones different bytes.

A slot per key column (big-endian, so that keys which grow lie side by side in RocksDB; else the length of a payload),
then the payloads. No key is empty: the empty key belongs to `database`. Bytes do not sort like the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.hot.embedded.kv.structcodec import (
    child_codec,
    encode_payload,
    fixed_values,
    is_fixed,
    lengths_of,
    make_binary,
    width_of,
)

_BIG_ENDIAN = {1: "u1", 2: ">u2", 4: ">u4", 8: ">u8"}


class KeyCodec:
    """Encodes the primary-key columns of a batch. Immutable; safe to share between threads."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self.names = tuple(f.name for f in fields)
        self._types = [f.type for f in fields]
        self._children = [child_codec(kind) for kind in self._types]
        self._record = np.dtype([(f"f{i}", _slot(kind)) for i, kind in enumerate(self._types)])

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The keys of the batch's rows; its key columns hold no null."""
        records = np.zeros(batch.num_rows, self._record)
        payloads = []
        for i, (name, kind) in enumerate(zip(self.names, self._types, strict=True)):
            column = batch.column(name)
            if is_fixed(kind):
                records[f"f{i}"] = fixed_values(column)
            else:
                payload = encode_payload(column, self._children[i])
                records[f"f{i}"] = lengths_of(payload)
                payloads.append(payload)
        slots = make_binary(
            np.arange(batch.num_rows + 1, dtype=np.int64) * self._record.itemsize, records.view(np.uint8)
        )
        return pc.binary_join_element_wise(slots, *payloads, b"") if payloads else slots


def _slot(kind: pa.DataType) -> Any:
    if not is_fixed(kind):
        return ">u4"
    width = width_of(kind)
    return _BIG_ENDIAN.get(width, f"V{width}")
