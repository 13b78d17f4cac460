# SPDX-License-Identifier: Apache-2.0
"""Numbers and nesting that no message has are refused where messages are read."""

from __future__ import annotations

import pytest

from lakeward.errors import InvalidRequest
from lakeward.model import RoundPhases
from lakeward.protocol.codec import decode, load_json
from lakeward.protocol.flight import ActionRequest, from_bytes


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**63])
def test_integers_have_64_bits(number: int) -> None:
    with pytest.raises(InvalidRequest, match="at_ms"):
        decode(ActionRequest, {"at_ms": number})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 1e300, 10**400])
def test_floats_are_finite(number: float) -> None:
    with pytest.raises(InvalidRequest, match="wait_s"):
        decode(RoundPhases, {"wait_s": number})
    assert decode(RoundPhases, {"wait_s": 1}).wait_s == 1.0


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b"[" * 100 + b"]" * 100,
        b'{"a":' * 5000,
        b"NaN",
        b"Infinity",
        b"1" * 5000,
        b"\xff",
        b"",
        b"[" + b"[]," * 250_000 + b"[]]",
    ],
    ids=["deep", "too deep", "objects", "nan", "infinity", "digits", "bytes", "nothing", "many"],
)
def test_json_that_no_message_has(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        load_json(raw, "it")
    with pytest.raises(InvalidRequest):
        from_bytes(ActionRequest, raw)
