# SPDX-License-Identifier: Apache-2.0
"""Fluss's error codes, and which of our errors each becomes."""

from __future__ import annotations

from enum import IntEnum

from lakeward.errors import ClusterUnavailable, FlussError, Forbidden, LakewardError, Unauthorized


class Code(IntEnum):
    UNKNOWN = -1
    NETWORK = 1
    UNSUPPORTED_VERSION = 2
    CORRUPT_MESSAGE = 3
    TABLE_NOT_FOUND = 7
    NOT_LEADER = 12
    OFFSET_OUT_OF_RANGE = 19
    UNKNOWN_TABLE_OR_BUCKET = 21
    INVALID_COORDINATOR = 23
    TIMED_OUT = 25
    PARTITION_NOT_FOUND = 36
    LAKE_NOT_CONFIGURED = 40
    KV_SNAPSHOT_GONE = 41
    LEADER_NOT_AVAILABLE = 44
    AUTHENTICATION = 46
    AUTHORIZATION = 48
    FENCED_EPOCH = 50
    AUTHENTICATION_AGAIN = 51
    LAKE_SNAPSHOT_NOT_FOUND = 53
    NOT_COORDINATOR_LEADER = 65


MOVED = frozenset(
    {Code.NOT_LEADER, Code.UNKNOWN_TABLE_OR_BUCKET, Code.LEADER_NOT_AVAILABLE, Code.NOT_COORDINATOR_LEADER}
)
"""Refresh the metadata: another server leads the bucket, or is the coordinator."""

_STARTING = ("not initialized yet", "Failed to get table path by ID")
"""In the words of error -1 from a coordinator that has just started: it listens before it can answer."""

_TRY_LATER = MOVED | {Code.NETWORK, Code.TIMED_OUT, Code.AUTHENTICATION_AGAIN}


def to_error(address: str, what: str, code: int, text: str | None) -> LakewardError:
    """The typed error of an answer. `fluss_code_of` gives the number back where callers care."""
    words = (text or "no message").strip().splitlines()[0] if (text or "").strip() else "no message"
    if code in _TRY_LATER or (code == Code.UNKNOWN and any(s in words for s in _STARTING)):
        error: LakewardError = ClusterUnavailable(address=address, reason=f"{what}: Fluss error {code}: {words}")
    elif code == Code.AUTHENTICATION:
        error = Unauthorized(what=f"{what} at Fluss {address} ({words})")
    elif code == Code.AUTHORIZATION:
        error = Forbidden(token_name="Fluss user", role="unknown", what=what, needed=words)  # noqa: S106 - a name, no secret
    else:
        error = FlussError(address=address, what=what, fluss_code=code, text=words[:500])
    error.__dict__["fluss_number"] = code
    return error


def fluss_code_of(error: LakewardError) -> int | None:
    """Fluss's number of an error that came from an answer; None for all others."""
    code: int | None = error.__dict__.get("fluss_number")
    return code
