# SPDX-License-Identifier: Apache-2.0
"""How large an Arrow stream says it is, read from its headers before anything is decoded: compressed buffers say their
length in front, so a small message that unpacks into a large one is known as such.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.ipcheader import MALFORMED, read_layout


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
    if layout is None:
        return 0
    total = layout.rows
    for offset, length in layout.buffers:
        size = length
        if layout.is_compressed and length >= 8:
            size = max(length, struct.unpack_from("<q", body, offset)[0])
        if size < 0:
            raise IndexError("a buffer of a negative length")
        total += size
    return total
