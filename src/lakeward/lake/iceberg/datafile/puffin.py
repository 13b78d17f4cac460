# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors as bytes, and the Puffin file that holds those of one commit."""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap64

from lakeward.errors import LakeTampered
from lakeward.lake.metadatabounds import positions_in
from lakeward.model import UNNAMED, Offsets

_PUFFIN_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_POSITION_ID = 2147483645
"""Iceberg's reserved field id of a row's position."""


@dataclass(frozen=True)
class Blob:
    """Place of a data file's vector in the file, and the number of its rows."""

    data_file: str
    offset: int
    length: int
    count: int

    def describe(self) -> dict[str, object]:
        """Its entry in the footer. Snapshot and sequence number are unknown while it is written, which -1 means."""
        return {
            "type": "deletion-vector-v1",
            "fields": [_POSITION_ID],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": self.offset,
            "length": self.length,
            "properties": {"referenced-data-file": self.data_file, "cardinality": str(self.count)},
        }


def encode_puffin(vectors: Iterable[tuple[str, Offsets]]) -> tuple[bytes, list[Blob]]:
    """Encodes the file: a vector for each data file, named as in its manifest; positions are distinct."""
    body, blobs = bytearray(_PUFFIN_MAGIC), []
    for data_file, positions in vectors:
        vector = encode_vector(positions)
        blobs.append(Blob(data_file, len(body), len(vector), len(positions)))
        body += vector
    footer = json.dumps({"blobs": [b.describe() for b in blobs], "properties": {"created-by": "Lakeward"}}).encode()
    body += _PUFFIN_MAGIC + footer + struct.pack("<i", len(footer)) + bytes(4) + _PUFFIN_MAGIC
    return bytes(body), blobs


def encode_vector(positions: Offsets) -> bytes:
    """Encodes length, magic and a 64-bit Roaring bitmap, then the checksum of both."""
    bitmap = BitMap64(array("Q", positions.astype(np.uint64).tobytes()))  # numpy arrays are read number by number
    bitmap.run_optimize()
    payload = _VECTOR_MAGIC + bitmap.serialize()
    return struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))


def decode_vector(blob: bytes, path: str) -> Offsets:
    """Decodes positions, ascending. Raises `LakeTampered`, which names the file at `path`."""
    payload = blob[4:-4]
    framed = len(blob) >= 12 and struct.unpack_from(">i", blob)[0] == len(payload)
    if not framed or payload[:4] != _VECTOR_MAGIC or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(payload):
        raise LakeTampered(
            table=UNNAMED, snapshot="that names it", what=f"deletion vector in {path}", reason="it is not whole"
        )
    return positions_in(BitMap64.deserialize(payload[4:]))
