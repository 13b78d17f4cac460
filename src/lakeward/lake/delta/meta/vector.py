# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors: positions of a data file's deleted rows as Delta stores them, several in one file."""

from __future__ import annotations

import struct
import uuid
import zlib
from array import array
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyroaring

from lakeward.errors import LakeTampered
from lakeward.lake.metadatabounds import positions_in
from lakeward.lake.tablefiles import TableFiles, plain_path, sync
from lakeward.model import OffsetSet

_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Z85, which encodes the names of vector files in the log."""

_ID_LENGTH = 20
Vector = dict[str, Any]
"""A vector's descriptor in the log."""


def write_vectors(
    files: TableFiles, root: str, folder: str, positions: Mapping[str, OffsetSet]
) -> tuple[dict[str, Vector], int]:
    """Writes one file below `folder` of the table; returns a descriptor for each key, and the file's size."""
    name = uuid.uuid4()
    data, vectors = bytearray(_VERSION), {}
    for key, deleted in positions.items():
        bitmap = pyroaring.BitMap64(array("Q", deleted.values.tobytes()))  # numpy arrays are read number by number
        blob = _MAGIC + bitmap.serialize()
        vectors[key] = {
            "storageType": "u",
            "pathOrInlineDv": f"{folder}{_encode(name.bytes)}",
            "offset": len(data),
            "sizeInBytes": len(blob),
            "cardinality": len(deleted),
        }
        data += struct.pack(">I", len(blob)) + blob + struct.pack(">I", zlib.crc32(blob))
    path = f"{root}/{folder}/deletion_vector_{name}.bin"
    files.put(path, bytes(data))
    sync([path])
    return vectors, len(data)


def load_vector(files: TableFiles, root: str, vector: Vector, table: str) -> OffsetSet:
    """Loads a vector. Raises `LakeTampered` if it does not match its descriptor; `OSError`."""
    path = vector_path(root, vector)
    if path is None:
        blob = _decode(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    else:
        with files.open_input(path) as source:
            source.seek(vector.get("offset") or 0)
            data = source.read(vector["sizeInBytes"] + 8)
        size, blob = data[:4], data[4 : 4 + vector["sizeInBytes"]]
        (checksum,) = struct.unpack(">I", data[4 + len(blob) :].rjust(4, b"\0"))
        if struct.pack(">I", len(blob)) != size or zlib.crc32(blob) != checksum:
            raise LakeTampered(table=table, snapshot="-", what=path, reason="its length or checksum is wrong")
    if blob[:4] != _MAGIC:
        raise LakeTampered(table=table, snapshot="-", what=path or "a vector in the log", reason="wrong magic")
    return OffsetSet.from_sorted(positions_in(pyroaring.BitMap64.deserialize(blob[4:])))


def vector_path(root: str, vector: Vector) -> str | None:
    """Returns the path of a vector's file; None: the vector is stored in the log."""
    text = vector["pathOrInlineDv"]
    match vector["storageType"]:
        case "u":
            name = uuid.UUID(bytes=_decode(text[-_ID_LENGTH:]))
            folder = f"{root}/{text[:-_ID_LENGTH]}".rstrip("/")
            return f"{folder}/deletion_vector_{name}.bin"
        case "p":
            return plain_path(unquote(str(text)))
    return None


def vector_id(vector: Vector | None) -> str:
    """Identifies a vector among entries of one data file; empty without a vector."""
    return "" if vector is None else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _encode(data: bytes) -> str:
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_DIGITS[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _decode(text: str) -> bytes:
    words = [text[at : at + 5] for at in range(0, len(text), 5)]
    values = [sum(_DIGITS.index(c) * 85 ** (4 - at) for at, c in enumerate(word)) for word in words]
    return struct.pack(f">{len(values)}I", *values)
