# SPDX-License-Identifier: Apache-2.0
"""How large an Arrow stream says it is, read from its headers before anything is decoded: compressed buffers say their
length in front, so a small message that unpacks into a large one is known as such.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.ipcheader import MALFORMED, BatchLayout, read_layout


def declared_bytes(stream: bytes, what: str) -> int:
    """The bytes of all batches once they are unpacked. Raises `InvalidRequest` for a header that cannot be read."""
    total = 0
    try:
        messages = pa.ipc.MessageReader.open_stream(stream)
        while True:
            try:
                message = messages.read_next_message()
            except StopIteration:
                return total
            total += _message_bytes(message.metadata.to_pybytes(), memoryview(message.body or b""))
    except (pa.ArrowException, OSError, *MALFORMED) as error:
        raise InvalidRequest(what=what, reason=f"malformed Arrow stream: {error}") from error


def _message_bytes(header: bytes, body: memoryview) -> int:
    layout = read_layout(header)
    return 0 if layout is None else layout.rows + unpacked_bytes(layout, body)


def unpacked_bytes(layout: BatchLayout, body: memoryview) -> int:
    """Size of all its buffers once unpacked. Raises one of `MALFORMED`."""
    buffers = layout.buffers
    if any(offset < 0 or length < 0 for offset, length in buffers):
        raise IndexError("a buffer at a negative place")
    if not layout.is_compressed:
        return sum(length for _, length in buffers)
    return sum(
        max(length, struct.unpack_from("<q", body, offset)[0]) if length >= 8 else length for offset, length in buffers
    )
