# SPDX-License-Identifier: Apache-2.0
"""Flight's messages: what is written is read, whatever comes is bounded, and a batch is known by what it unpacks to."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.ipcheader import MALFORMED, read_layout
from lakeward.hot.embedded.serve.declared import unpacked_bytes
from lakeward.hot.embedded.serve.flightdata import (
    FlightData,
    batch_message,
    read_batch,
    read_fields,
    read_flight_data,
    read_schema,
    schema_message,
    write_field,
)


def zeros(count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array([0] * count, pa.int64()), "name": pa.array(["x"] * count)})


def packed(batch: pa.RecordBatch, codec: str | None) -> bytes:
    """As a client sends it that compresses."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    *_, last = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return write_field(2, last.metadata.to_pybytes()) + write_field(3, b"{}") + write_field(1000, bytes(last.body))


def size_of(message: bytes) -> int:
    data = read_flight_data(message, "it")
    layout = read_layout(bytes(data.header))
    assert layout is not None
    return unpacked_bytes(layout, data.body)


@pytest.mark.parametrize("count", [0, 1, 10, 20_000])
def test_what_is_written_is_read(count: int) -> None:
    batch = zeros(count)
    assert read_schema(read_flight_data(schema_message(batch.schema), "it")) == batch.schema
    data = read_flight_data(batch_message(batch, b"told"), "it")
    assert (bytes(data.metadata), bytes(data.descriptor)) == (b"told", b"")
    assert read_batch(data, batch.schema) == batch


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_a_batch_is_known_by_what_it_unpacks_to(codec: str | None) -> None:
    batch = zeros(5_000)
    size = size_of(packed(batch, codec))
    assert abs(size - batch.get_total_buffer_size()) < 200
    assert read_batch(read_flight_data(packed(batch, codec), "it"), batch.schema) == batch


def test_one_buffer_in_many_places_counts_each_time() -> None:
    message = bytearray(packed(zeros(400), "zstd"))
    layouts = [i for i in range(len(message) - 80) if struct.unpack_from("<I", message, i)[0] == 5]
    at = next(i for i in layouts if struct.unpack_from("<q", message, i + 4)[0] == 0) + 4
    longest = max((struct.unpack_from("<qq", message, at + 16 * n) for n in range(5)), key=lambda pair: pair[1])
    for n in range(5):
        struct.pack_into("<qq", message, at + 16 * n, *longest)
    assert size_of(bytes(message)) > 1.5 * size_of(packed(zeros(400), "zstd"))


@given(st.lists(st.tuples(st.integers(2, 230), st.integers(0, 255)), max_size=8))
def test_a_broken_header_is_refused_or_known(changes: list[tuple[int, int]]) -> None:
    message = bytearray(packed(zeros(400), "zstd"))
    for at, byte in changes:
        message[at] = byte
    with suppress(InvalidRequest, AssertionError, *MALFORMED):
        size_of(bytes(message))


@given(st.binary(max_size=300))
def test_any_bytes_are_fields_or_refused(raw: bytes) -> None:
    with suppress(InvalidRequest):
        data = read_flight_data(raw, "it")
        assert isinstance(data, FlightData)
        assert sum(map(len, data)) <= len(raw)


def test_the_last_of_several_parts_is_the_one_that_is_looked_at_and_read() -> None:
    """A header behind the body, or a second one, hides nothing: what is measured is what is unpacked."""
    small, large = packed(zeros(1), None), packed(zeros(1_000), "zstd")
    assert size_of(small + large) == size_of(large)
    assert read_batch(read_flight_data(small + large, "it"), zeros(1).schema).num_rows == 1_000


@pytest.mark.parametrize(
    "raw",
    [
        b"\x12\xff\xff\xff\xff\x0f",  # longer than the message
        b"\x12" + b"\xff" * 20,  # a length without an end
        b"\x13",  # a group
        b"\x08\x01" * 100,  # a hundred fields
        write_field(2, bytes((4 << 20) + 1)),
    ],
    ids=["long", "endless", "group", "many", "header"],
)
def test_messages_that_do_harm(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_flight_data(raw, "it")


def test_numbers_and_fixed_fields_are_passed_over() -> None:
    raw = b"\x08\x96\x01" + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + write_field(2, b"here")
    assert {number: bytes(value) for number, value in read_fields(raw, "it").items()} == {2: b"here"}
