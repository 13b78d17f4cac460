# SPDX-License-Identifier: Apache-2.0
"""Rows to bytes and back, in bulk on Arrow buffers: no Python runs per row, at any depth of nesting.

One value: null bits (one per field, set = null), a slot per field (fixed width: the value, zero when null; else the u32
length of its payload), then the payloads in field order. A list's payload: u32 count, u32 length of each element, the
elements, each encoded as a struct of one field. A map is a list of key and value; a struct's payload is a value of this
very layout. Equal rows have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest

_UINTS = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_MAX_BYTES = 2**31 - 1
_ENTRY = 4
"""Bytes of a length or a count."""


class StructCodec:
    """Encodes and decodes structs with these fields. Immutable; safe to share between threads."""

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        self.fields = tuple(fields)
        self._bitmap_bytes = (len(self.fields) + 7) // 8
        self._record = _record_type(self.fields, self._bitmap_bytes)
        self._children = [child_codec(f.type) for f in self.fields]
        self._variable = [i for i, f in enumerate(self.fields) if not is_fixed(f.type)]

    def encode(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        """One binary value per row; `arrays` are as the fields, all of one length."""
        count = len(arrays[0])
        records = np.zeros(count, self._record)
        payloads: list[pa.Array] = []
        for i, array in enumerate(arrays):
            if array.null_count:
                records["nulls"][:, i // 8] |= _null_mask(array).astype(np.uint8) << (i % 8)
            if self._is_variable(i):
                payload = encode_payload(array, self._children[i])
                records[f"f{i}"] = lengths_of(payload)
                payloads.append(payload)
            else:
                records[f"f{i}"] = fixed_values(_opaque(array))
        fixed = _strided(records)
        if not payloads:
            return fixed
        return pc.binary_join_element_wise(fixed, *payloads, b"", null_handling="replace", null_replacement=b"")

    def decode(self, rows: pa.BinaryArray, wanted: Sequence[int] | None = None) -> list[pa.Array]:
        """The columns at the positions `wanted` (default all) of encoded rows, of which none is null."""
        count = len(rows)
        offsets, data = binary_parts(rows)
        records = np.frombuffer(heads_of(rows, self._record.itemsize), self._record, count)
        parts = self._split(records, offsets, data) if self._variable else None
        return [self._decode_field(i, records, parts) for i in (range(len(self.fields)) if wanted is None else wanted)]

    def _split(self, records: npt.NDArray[Any], offsets: npt.NDArray[np.int32], data: memoryview) -> pa.BinaryArray:
        """Every row cut into its fixed part and its payloads, without copying: row i's payload p is element i * (k + 1)
        + 1 + p.
        """
        cuts = np.empty((len(records), len(self._variable) + 1), np.int64)
        cuts[:, 0] = offsets[:-1]
        cuts[:, 1] = cuts[:, 0] + self._record.itemsize
        for p, i in enumerate(self._variable[:-1]):
            cuts[:, p + 2] = cuts[:, p + 1] + records[f"f{i}"]
        flat = np.append(cuts.reshape(-1), offsets[-1]).astype(np.int32)
        return make_binary(flat, data)

    def _decode_field(self, i: int, records: npt.NDArray[Any], parts: pa.BinaryArray | None) -> pa.Array:
        kind, count = self.fields[i].type, len(records)
        nulls = ((records["nulls"][:, i // 8] >> (i % 8)) & 1).astype(np.bool_)
        if not self._is_variable(i):
            if not is_vector(kind):
                return _fixed_array(kind, records[f"f{i}"], nulls)
            return _vectors(kind, _fixed_array(pa.binary(width_of(kind)), records[f"f{i}"], nulls))
        assert parts is not None
        stride = len(self._variable) + 1
        at = np.arange(count, dtype=np.int64) * stride + 1 + self._variable.index(i)
        return _decode_payload(kind, parts.take(pa.array(at)), nulls, self._children[i])

    def _is_variable(self, i: int) -> bool:
        return not is_fixed(self.fields[i].type)


def is_fixed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_primitive(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
        or is_vector(kind)
    )


def is_vector(kind: pa.DataType) -> bool:
    """A fixed number of floats of which none is null: a slot of its own, as the bytes of all of them."""
    return bool(pa.types.is_fixed_size_list(kind))


def _opaque(array: pa.Array) -> pa.Array:
    if not is_vector(array.type):
        return array
    width, values = width_of(array.type), array.values
    data = values.buffers()[1]
    data = data if data is None else data.slice(values.offset * (width // array.type.list_size))
    return pa.Array.from_buffers(pa.binary(width), len(array), [array.buffers()[0], data], offset=array.offset)


def _vectors(kind: pa.DataType, slots: pa.Array) -> pa.Array:
    valid, data = slots.buffers()
    values = pa.Array.from_buffers(kind.value_type, len(slots) * kind.list_size, [None, data])
    return pa.Array.from_buffers(kind, len(slots), [valid], children=[values])


def binary_parts(array: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], memoryview]:
    """Offsets (one more than values) and the data they point into. Slices keep the whole data."""
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(1, np.int32), memoryview(b"")
    starts = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    view = memoryview(data) if data is not None else memoryview(b"")
    return starts, view


def binary_of(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Python bytes as one Arrow array. Raises `InvalidRequest` above 2 GiB."""
    array = pa.array(values, pa.binary())
    if isinstance(array, pa.ChunkedArray):
        raise InvalidRequest(
            what=f"{len(values)} rows", reason=f"KV holds more than {_MAX_BYTES} bytes for them; take fewer at once"
        )
    return array


def heads_of(array: pa.BinaryArray, width: int) -> memoryview:
    """The first `width` bytes of every value, side by side; no value is null or shorter."""
    return binary_parts(_cut(array, width).take(pa.array(np.arange(len(array), dtype=np.int64) * 2)))[1]


def tails_of(array: pa.BinaryArray, width: int) -> pa.BinaryArray:
    """Every value without its first `width` bytes."""
    return _cut(array, width).take(pa.array(np.arange(len(array), dtype=np.int64) * 2 + 1))


def _cut(array: pa.BinaryArray, width: int) -> pa.BinaryArray:
    # not pc.binary_slice: it fails ("Negative buffer resize") on arrays that other kernels filtered
    offsets, data = binary_parts(array)
    cuts = np.empty((len(array), 2), np.int32)
    cuts[:, 0] = offsets[:-1]
    cuts[:, 1] = offsets[:-1] + width
    return make_binary(np.append(cuts.reshape(-1), offsets[-1]), data)


def make_binary(offsets: npt.NDArray[Any], data: Any) -> pa.BinaryArray:
    """Values that lie in `data` side by side, without copying them. Raises `InvalidRequest` above 2 GiB,
    Arrow's limit.
    """
    if offsets[-1] > _MAX_BYTES:
        raise InvalidRequest(
            what=f"{len(offsets) - 1} rows",
            reason=f"they take {offsets[-1]} bytes, at most {_MAX_BYTES} go into one put",
        )
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def validity(nulls: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def _record_type(fields: Sequence[pa.Field], bitmap_bytes: int) -> np.dtype[Any]:
    slots: list[Any] = [("nulls", "u1", (bitmap_bytes,))]
    slots += [(f"f{i}", _slot_format(f.type)) for i, f in enumerate(fields)]
    return np.dtype(slots)


def _slot_format(kind: pa.DataType) -> str:
    if not is_fixed(kind):
        return "<u4"
    width = width_of(kind)
    return _UINTS.get(width, f"V{width}")


def width_of(kind: pa.DataType) -> int:
    if is_vector(kind):
        return int(kind.list_size * kind.value_type.bit_width // 8)
    return 1 if pa.types.is_boolean(kind) else int(kind.bit_width // 8)


def child_codec(kind: pa.DataType) -> StructCodec | None:
    if pa.types.is_map(kind):
        return StructCodec([kind.key_field, kind.item_field])
    if pa.types.is_list(kind):
        return StructCodec([kind.value_field])
    if pa.types.is_struct(kind):
        return StructCodec(list(kind))
    return None


def _null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def fixed_values(array: pa.Array) -> npt.NDArray[Any]:
    """The values of a fixed-width column as they stand in its slots."""
    if pa.types.is_boolean(array.type):
        flags = pc.fill_null(array, False) if array.null_count else array
        return np.asarray(flags.to_numpy(zero_copy_only=False), np.uint8)
    form = _slot_format(array.type)
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), form)
    values = np.frombuffer(data, form, len(array), array.offset * width_of(array.type))
    if array.null_count:
        values = values.copy()
        values[_null_mask(array)] = np.zeros((), form)
    return values


def _fixed_array(kind: pa.DataType, slots: npt.NDArray[Any], nulls: npt.NDArray[np.bool_]) -> pa.Array:
    if pa.types.is_boolean(kind):
        data = np.packbits(slots.astype(np.bool_), bitorder="little")
    else:
        data = np.ascontiguousarray(slots)
    # numpy gives void types no buffer format that Arrow takes, bytes always do
    return pa.Array.from_buffers(kind, len(slots), [validity(nulls), pa.py_buffer(data.view(np.uint8))])


def _strided(records: npt.NDArray[Any]) -> pa.BinaryArray:
    width = records.dtype.itemsize
    return make_binary(np.arange(len(records) + 1, dtype=np.int64) * width, records.view(np.uint8))


def lengths_of(array: pa.BinaryArray) -> npt.NDArray[Any]:
    lengths = pc.binary_length(array)
    return np.asarray((pc.fill_null(lengths, 0) if lengths.null_count else lengths).to_numpy(zero_copy_only=False))


def encode_payload(array: pa.Array, child: StructCodec | None) -> pa.BinaryArray:
    """The payloads of a column without a fixed width; null where the value is null."""
    if child is None:
        return array.cast(pa.binary())
    if pa.types.is_struct(array.type):
        payload = child.encode(array.flatten())
    else:
        payload = _encode_lists(array, child)
    return pc.if_else(array.is_valid(), payload, pa.scalar(None, pa.binary())) if array.null_count else payload


def _encode_lists(array: pa.Array, child: StructCodec) -> pa.BinaryArray:
    """Lists and maps. The elements of a list lie side by side, so a list's payload is a slice of the encoded
    elements.
    """
    is_map = pa.types.is_map(array.type)
    # Arrow's list kernels do not take maps
    lists = array.cast(pa.list_(pa.struct(child.fields))) if is_map else array
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False), np.int64)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    flat = lists.flatten()
    elements = child.encode(flat.flatten() if is_map else [flat])
    starts, data = binary_parts(elements)
    lengths = np.diff(starts).astype("<u4")
    heads = make_binary(np.arange(len(counts) + 1, dtype=np.int64) * _ENTRY, counts.astype("<u4"))
    return pc.binary_join_element_wise(
        heads, make_binary(bounds * _ENTRY, lengths), make_binary(starts[bounds], data), b""
    )


def _decode_payload(
    kind: pa.DataType, payloads: pa.BinaryArray, nulls: npt.NDArray[np.bool_], child: StructCodec | None
) -> pa.Array:
    if child is None:
        _, offsets, data = payloads.buffers()
        return pa.Array.from_buffers(kind, len(payloads), [validity(nulls), offsets, data], offset=payloads.offset)
    present = payloads.filter(pa.array(~nulls)) if nulls.any() else payloads
    if pa.types.is_struct(kind):
        return _decode_structs(kind, child.decode(present), nulls)
    return _decode_lists(kind, present, nulls, child)


def _decode_structs(kind: pa.DataType, children: list[pa.Array], nulls: npt.NDArray[np.bool_]) -> pa.Array:
    if nulls.all() and len(nulls):
        return pa.nulls(len(nulls), kind)
    if not nulls.any():
        return pa.StructArray.from_arrays(children, fields=list(kind))
    # under a null struct any value may stand: its fields may be NOT NULL
    spread = pa.array(np.maximum(np.cumsum(~nulls) - 1, 0))
    return pa.StructArray.from_arrays([c.take(spread) for c in children], fields=list(kind), mask=pa.array(nulls))


def _decode_lists(
    kind: pa.DataType, present: pa.BinaryArray, nulls: npt.NDArray[np.bool_], child: StructCodec
) -> pa.Array:
    offsets, data = binary_parts(present)
    entry_counts = np.frombuffer(heads_of(present, _ENTRY), "<u4", len(present)).astype(np.int64)
    columns = child.decode(_elements(entry_counts, offsets.astype(np.int64), data))
    counts = np.zeros(len(nulls), np.int64)
    counts[~nulls] = entry_counts
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = (
        pa.StructArray.from_arrays(columns, fields=[kind.key_field, kind.item_field])
        if pa.types.is_map(kind)
        else columns[0]
    )
    return pa.Array.from_buffers(kind, len(nulls), [validity(nulls), pa.py_buffer(bounds)], children=[values])


def _elements(counts: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], data: memoryview) -> pa.BinaryArray:
    """Every element of every list, one after the other, each as one encoded value."""
    cuts = np.empty((len(counts), 3), np.int64)
    cuts[:, 0] = offsets[:-1]
    cuts[:, 1] = cuts[:, 0] + _ENTRY
    cuts[:, 2] = cuts[:, 1] + counts * _ENTRY
    parts = make_binary(np.append(cuts.reshape(-1), offsets[-1]), data)
    first = np.arange(len(counts), dtype=np.int64) * 3
    total = int(counts.sum())
    lengths = np.frombuffer(binary_parts(parts.take(pa.array(first + 1)))[1], "<u4", total).astype(np.int64)
    elements = binary_parts(parts.take(pa.array(first + 2)))[1]
    return make_binary(np.concatenate([[0], np.cumsum(lengths)]), elements)
