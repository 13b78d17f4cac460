# SPDX-License-Identifier: Apache-2.0
"""How the server tells a Flight client that a call failed: the trailers that Arrow's own server ends a failed call
with, so that clients find the same typed error in them. Never a stack.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow as pa

from lakeward.errors import (
    Forbidden,
    InvalidRequest,
    LakewardError,
    RemoteError,
    ServerUnavailable,
    Unauthorized,
    to_wire,
)
from lakeward.hot.embedded.remote.failure import first_line, short
from lakeward.model import find_disk_trouble

log = logging.getLogger(__name__)

_KINDS: dict[type[LakewardError], tuple[grpc.StatusCode, bytes]] = {
    Unauthorized: (grpc.StatusCode.UNAUTHENTICATED, b"Unauthenticated"),
    Forbidden: (grpc.StatusCode.PERMISSION_DENIED, b"Unauthorized"),
    ServerUnavailable: (grpc.StatusCode.UNAVAILABLE, b"Unavailable"),
}
"""gRPC's code and Arrow's word; what is not named here is unknown and failed."""
_ARROW_IO_ERROR = "5"


class CallEnded(Exception):
    """The peer is gone, or the server gave the call up: nothing more can be sent on it."""


def wire_form(error: LakewardError) -> dict[str, Any]:
    """Short enough for trailers."""
    wire = to_wire(error)
    wire["message"] = short(wire["message"])
    wire["facts"] = {k: short(v) if isinstance(v, str) else v for k, v in wire["facts"].items()}
    return wire


def set_status(context: grpc.ServicerContext, error: LakewardError) -> None:
    """Sets the status with which the call will end."""
    code, word = _KINDS.get(type(error), (grpc.StatusCode.UNKNOWN, b"Failed"))
    wire = wire_form(error)
    context.set_code(code)
    context.set_details(wire["message"])
    context.set_trailing_metadata(
        (
            ("grpc-status-details-bin", json.dumps(wire).encode()),
            ("x-arrow-status", _ARROW_IO_ERROR),
            ("x-arrow-status-detail-bin", word),
            ("x-arrow-status-message-bin", wire["message"].encode(errors="backslashreplace")),
        )
    )


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Around the server's side of a call: whatever is raised leaves as a typed error, or as `CallEnded`."""
    try:
        yield
    except CallEnded:
        raise
    except LakewardError as error:
        full = find_disk_trouble(error)
        if full is None or full is error:
            raise
        raise full from error
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        pa.ArrowKeyError,
        UnicodeDecodeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise InvalidRequest(what=what, reason=f"malformed Arrow data: {first_line(error)}") from error
    except Exception as error:
        full = find_disk_trouble(error)
        if full is not None:
            raise full from error
        log.exception("%s failed", what)
        text = f"the server failed on {what}; its log says why"
        raise RemoteError(remote_code="internal", text=text) from error
