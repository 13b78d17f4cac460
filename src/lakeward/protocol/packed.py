# SPDX-License-Identifier: Apache-2.0
"""Messages between a driver and its tasks: versioned bytes of a dataclass by the messages' codec, none pickled.

They live as long as a round, a rewrite or a read: nothing stores them, so each version reads its own alone.
"""

from __future__ import annotations

from typing import ClassVar, Self

from lakeward.errors import IncompatibleVersion
from lakeward.model import OwnBytes, pack, unpack
from lakeward.protocol.codec import decode, encode_fields


class Packed(OwnBytes):
    """`packed_as`: kind and version of the bytes. Fields may hold bytes, errors, and what has bytes of its own."""

    packed_as: ClassVar[tuple[str, int]]

    def to_bytes(self) -> bytes:
        return pack(*self.packed_as, encode_fields(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `IncompatibleVersion` where the processes of one job run different versions, `InvalidRequest`."""
        kind, newest = cls.packed_as
        version, body, blobs = unpack(kind, newest, data)
        if version != newest:
            raise IncompatibleVersion(
                peer="the writer of these bytes", what=kind, theirs=str(version), ours=str(newest)
            )
        return decode(cls, body, blobs)
