# SPDX-License-Identifier: Apache-2.0
"""Typed errors over Flight: their wire form rides in the error's extra_info and comes back as the same type."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from lakeward.errors import (
    Forbidden,
    InvalidRequest,
    LakewardError,
    RemoteError,
    ServerUnavailable,
    Unauthorized,
    from_wire,
    to_wire,
)
from lakeward.model.disktrouble import find_disk_trouble

log = logging.getLogger(__name__)

LONGEST_TEXT = 800
"""gRPC sends trailers of 8 kB at most, and the details are in there twice (as message and as base64)."""

_BROKEN = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightInternalError,
    flight.FlightCancelledError,
)


def to_flight(error: LakewardError) -> flight.FlightError:
    wire = to_wire(error)
    wire["message"] = _short(wire["message"])
    wire["facts"] = {k: _short(v) if isinstance(v, str) else v for k, v in wire["facts"].items()}
    kind: Any = flight.FlightServerError
    if isinstance(error, Unauthorized):
        kind = flight.FlightUnauthenticatedError
    elif isinstance(error, Forbidden):
        kind = flight.FlightUnauthorizedError
    return kind(wire["message"], json.dumps(wire).encode())


def from_flight(error: BaseException, address: str) -> LakewardError:
    """The typed error; a connection that broke is `ServerUnavailable`."""
    details = getattr(error, "extra_info", b"")
    if details:
        try:
            return from_wire(json.loads(details))
        except ValueError:
            pass
    if isinstance(error, _BROKEN):
        return ServerUnavailable(address=address, reason=_first_line(error))
    return RemoteError(remote_code=type(error).__name__, text=_first_line(error))


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Around the server's side of a call: whatever is raised leaves as a Flight error, without a stack."""
    try:
        yield
    except flight.FlightError:
        raise
    except LakewardError as error:
        raise to_flight(find_disk_trouble(error) or error) from error
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        pa.ArrowKeyError,
        UnicodeDecodeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise to_flight(InvalidRequest(what=what, reason=f"malformed Arrow data: {_first_line(error)}")) from error
    except Exception as error:
        full = find_disk_trouble(error)
        if full is not None:
            raise to_flight(full) from error
        log.exception("%s failed", what)
        raise to_flight(
            RemoteError(remote_code="internal", text=f"the server failed on {what}; its log says why")
        ) from error


@contextmanager
def calling(address: str) -> Iterator[None]:
    """Around the client's side of a call: Flight's errors come out typed."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise from_flight(error, address) from error


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Around all that a call needs, the way to the server included: whoever reads the error learns what was wanted of
    it.
    """
    try:
        yield
    except ServerUnavailable as error:
        raise ServerUnavailable(address=error.address, what=what, reason=error.reason) from error


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _first_line(error: BaseException) -> str:
    return _short(str(error).split("\n", 1)[0].split(". gRPC client debug context", 1)[0])
