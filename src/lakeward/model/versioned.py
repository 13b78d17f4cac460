# SPDX-License-Identifier: Apache-2.0
"""Versioned bytes: how small results travel between processes without pickles.

Layout: magic `LWV1`, CRC-32 of all that follows (u32, little-endian like the next), length of a JSON header (u32), the
header (kind, version, body, blob lengths), the blobs. Bytes in a body become blobs as well: it has their number.
"""

from __future__ import annotations

import json
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from lakeward.errors import IncompatibleVersion, InvalidRequest

MAGIC = b"LWV1"
_FRAME = 12


class OwnBytes(ABC):
    """Travels as bytes of its own."""

    __slots__ = ()

    @abstractmethod
    def to_bytes(self) -> bytes: ...

    @classmethod
    @abstractmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `InvalidRequest`."""


def pack(kind: str, version: int, body: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    every_blob = list(blobs)

    def number_of(blob: bytes) -> int:
        every_blob.append(blob)
        return len(every_blob) - 1

    body_text = json.dumps(body, separators=(",", ":"), sort_keys=True, default=number_of)
    facts = json.dumps({"kind": kind, "version": version, "blobs": [len(b) for b in every_blob]})
    encoded = f'{{"body":{body_text},{facts[1:]}'.encode()
    packed = b"".join((struct.pack("<I", len(encoded)), encoded, *every_blob))
    return b"".join((MAGIC, struct.pack("<I", zlib.crc32(packed)), packed))


def unpack(kind: str, newest: int, data: bytes) -> tuple[int, dict[str, Any], list[bytes]]:
    """(version, body, blobs). A newer version than `newest` is an `IncompatibleVersion`, anything else an
    `InvalidRequest`.
    """
    try:
        if data[:4] != MAGIC:
            raise ValueError("wrong magic")
        checksum, length = struct.unpack_from("<II", data, 4)
        if zlib.crc32(memoryview(data)[8:]) != checksum:
            raise ValueError("wrong checksum")
        header = json.loads(data[_FRAME : _FRAME + length])
        packed_kind, version, body, sizes = header["kind"], int(header["version"]), header["body"], header["blobs"]
        if _FRAME + length + sum(sizes) != len(data):
            raise ValueError("wrong length")
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise InvalidRequest(what=f"versioned bytes of {kind}", reason=str(error)) from error
    if packed_kind != kind:
        raise InvalidRequest(what=f"versioned bytes of {kind}", reason=f"these are of {packed_kind}")
    if version > newest:
        raise IncompatibleVersion(peer="the writer of these bytes", what=kind, theirs=str(version), ours=str(newest))
    blobs, at = [], _FRAME + length
    for size in sizes:
        blobs.append(data[at : at + size])
        at += size
    return version, body, blobs
