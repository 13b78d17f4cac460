# SPDX-License-Identifier: Apache-2.0
"""A Parquet file that is being written: encodings chosen from its first row group, then its statistics in Iceberg's
form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from lakeward.errors import InvalidConfig
from lakeward.lake.encoding import dictionary_columns, gzip_level
from lakeward.lake.iceberg.meta.location import sync_files

_PLAIN_BYTES = 65_536
"""Files with fewer bytes of rows in memory are not compressed: setting up a decoder for each column takes readers a
quarter of the time that they spend on such a file, and it is merged with others soon."""

_CODECS = {"uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "lz4": "lz4", "brotli": "brotli"}


@dataclass(frozen=True)
class ParquetOptions:
    """Reads the table's `write.parquet.*` properties."""

    codec: str
    level: int | None
    page_bytes: int
    dictionary_bytes: int
    row_group_bytes: int
    row_group_rows: int

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> ParquetOptions:
        name = properties.get("write.parquet.compression-codec", "zstd").lower()
        if name not in _CODECS:
            raise InvalidConfig(
                where="write.parquet.compression-codec", reason=f"{name!r} is not one of {', '.join(_CODECS)}"
            )
        level = properties.get("write.parquet.compression-level")
        return cls(
            codec=_CODECS[name],
            level=gzip_level(name) if level is None or level == "null" else int(level),
            page_bytes=int(properties.get("write.parquet.page-size-bytes", 1024 * 1024)),
            dictionary_bytes=int(properties.get("write.parquet.dict-size-bytes", 2 * 1024 * 1024)),
            # A writer buffers at most 64 MiB of Arrow: 10 to 20 MB of Parquet, large enough for every reader.
            row_group_bytes=min(
                int(properties.get("write.parquet.row-group-size-bytes", 64 * 1024 * 1024)), 64 * 1024 * 1024
            ),
            row_group_rows=int(properties.get("write.parquet.row-group-limit", 1_048_576)),
        )


class ParquetOutput:
    """A file opened on its first row group. `size` grows with each; statistics are available after `close`."""

    def __init__(self, io: FileIO, path: str, schema: pa.Schema, options: ParquetOptions) -> None:
        self.path = path
        self._io, self._schema, self._options = io, schema, options
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self.size = 0

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._open(table)
        assert self._writer is not None
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.size = self._stream.tell()

    def _open(self, first: pa.Table) -> None:
        self._stream = self._io.new_output(self.path).create(overwrite=True)
        is_packed = first.nbytes > _PLAIN_BYTES or first.num_rows >= self._options.row_group_rows
        self._writer = pq.ParquetWriter(
            self._stream,
            self._schema,
            compression=self._options.codec if is_packed else "none",
            compression_level=self._options.level if is_packed else None,
            use_dictionary=dictionary_columns(first),
            data_page_size=self._options.page_bytes,
            dictionary_pagesize_limit=self._options.dictionary_bytes,
            store_schema=False,  # with ARROW:schema other readers expect large_string and fail
            store_decimal_as_integer=True,
            write_page_index=True,
        )

    def close(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self.size = self._stream.tell()
        self._stream.close()
        sync_files([self.path])

    @property
    def metadata(self) -> pq.FileMetaData:
        """Statistics of the closed file."""
        assert self._writer is not None
        return self._writer.writer.metadata

    def abandon(self) -> None:
        """Closes handles; the file is an orphan."""
        for handle in (self._writer, self._stream):
            try:
                if handle is not None:
                    handle.close()
            except (OSError, ValueError, pa.ArrowException):
                continue
        self._writer = None


class FileStatistics:
    """Converts a closed file's Parquet metadata to Iceberg's column statistics; the plan is made once per schema."""

    def __init__(self, schema: Schema, properties: Mapping[str, str]) -> None:
        self._plan = compute_statistics_plan(schema, dict(properties))
        self._ids = parquet_path_to_id_mapping(schema)

    def of(self, metadata: pq.FileMetaData) -> dict[str, Any]:
        return data_file_statistics_from_parquet_metadata(metadata, self._plan, self._ids).to_serialized_dict()
