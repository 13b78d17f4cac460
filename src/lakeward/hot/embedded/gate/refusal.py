# SPDX-License-Identifier: Apache-2.0
"""How the gate says no to a call: the frames that Arrow's Flight server itself ends a failed call with, so that clients
find the same typed error in them.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from lakeward.errors import LakewardError, ServerUnavailable, Unauthorized, to_wire
from lakeward.hot.embedded.gate.frames import END_HEADERS, END_STREAM, HEADERS, NO_ERROR, frame, reset
from lakeward.hot.embedded.gate.headerblock import Field, write_fields

_KINDS: dict[type[LakewardError], tuple[bytes, bytes]] = {
    Unauthorized: (b"16", b"Unauthenticated"),
    ServerUnavailable: (b"14", b"Unavailable"),
}
"""gRPC's number and Arrow's word; what is not named here is unknown and failed."""
_ARROW_IO_ERROR = b"5"


def refuse(stream_id: int, error: LakewardError) -> bytes:
    status, word = _KINDS.get(type(error), (b"2", b"Failed"))
    text = str(error)
    fields: list[Field] = [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", status),
        (b"grpc-message", quote(text, safe=" ;:,.()/`'=").encode()),
        (b"grpc-status-details-bin", _binary(json.dumps(to_wire(error)).encode())),
        (b"x-arrow-status", _ARROW_IO_ERROR),
        (b"x-arrow-status-detail-bin", _binary(word)),
        (b"x-arrow-status-message-bin", _binary(text.encode())),
    ]
    told = frame(HEADERS, END_STREAM | END_HEADERS, stream_id, write_fields(fields))
    return told + reset(stream_id, NO_ERROR)


def _binary(value: bytes) -> bytes:
    return base64.b64encode(value).rstrip(b"=")
