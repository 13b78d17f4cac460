# SPDX-License-Identifier: Apache-2.0
"""Typed errors over Flight: their wire form comes in the error's extra_info and is raised as the same type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight

from lakeward.errors import InvalidRequest, LakewardError, RemoteError, ServerUnavailable, from_wire

LONGEST_TEXT = 800
"""gRPC sends trailers of 8 kB at most, and the details are in there twice (as message and as base64)."""

_BROKEN = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightInternalError,
    flight.FlightCancelledError,
)


def from_flight(error: BaseException, address: str) -> LakewardError:
    """The typed error; a connection that broke is `ServerUnavailable`."""
    details = getattr(error, "extra_info", b"")
    if details:
        try:
            return from_wire(json.loads(details))
        except ValueError:
            pass
    if isinstance(error, _BROKEN):
        return ServerUnavailable(address=address, reason=first_line(error))
    if isinstance(error, pa.ArrowInvalid) and "larger than max" in str(error):  # gRPC refuses it by its length alone
        return InvalidRequest(what=f"a message to {address}", reason=f"{first_line(error)}; send smaller ones")
    return RemoteError(remote_code=type(error).__name__, text=first_line(error))


@contextmanager
def calling(address: str) -> Iterator[None]:
    """Around the client's side of a call: Flight's errors come out typed."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise from_flight(error, address) from error


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Wraps everything that a call needs, the way to the server included, so that an error names the operation that
    failed."""
    try:
        yield
    except ServerUnavailable as error:
        raise ServerUnavailable(address=error.address, what=what, reason=error.reason) from error


def short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def first_line(error: BaseException) -> str:
    return short(str(error).split("\n", 1)[0].split(". gRPC client debug context", 1)[0])
