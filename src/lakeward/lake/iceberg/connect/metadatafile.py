# SPDX-License-Identifier: Apache-2.0
"""Reads an Iceberg metadata file, with limits before and after decompression: a megabyte of gzip can be gigabytes of
JSON.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from lakeward.lake.metadatabounds import MetadataBounds

_GZIP = 31
"""zlib's parameter for a gzip header and the largest window."""


def metadata_limit(options: Mapping[str, str]) -> int:
    """Returns the limit of the JSON, compressed and decompressed: parsed it takes about 20 times as much memory."""
    return MetadataBounds.parse(options).limit


def load_metadata(io: FileIO, location: str, options: Mapping[str, str]) -> TableMetadata:
    """Loads metadata. Raises `LakeMetadataTooLarge`, `OSError`; `ValueError` and pydantic's errors for an incomplete
    file."""
    return parse_metadata(read_metadata(io, location, metadata_limit(options)))


def read_metadata(io: FileIO, location: str, limit: int) -> bytes:
    with io.new_input(location).open() as source:
        stored: bytes = source.read(limit + 1)
    check_size(location, len(stored), limit)
    if not location.endswith(".gz.metadata.json"):
        return stored
    unpacking, data = zlib.decompressobj(_GZIP), b""
    try:
        data = unpacking.decompress(stored, limit + 1)
    except zlib.error as error:
        raise ValueError(f"{location}: {error}") from error
    check_size(location, len(data), limit)
    if not unpacking.eof:
        raise ValueError(f"{location} is cut off")
    return data


def parse_metadata(data: bytes) -> TableMetadata:
    return TableMetadataUtil.parse_raw(data.decode())


def check_size(location: str, size: int, limit: int) -> None:
    MetadataBounds(limit).check_packed(location, size)
