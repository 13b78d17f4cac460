# SPDX-License-Identifier: Apache-2.0
"""Positional delete files, for tables of format version 2."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.typedef import Record

from lakeward.lake.iceberg.commit.resolve import Hit
from lakeward.lake.iceberg.datafile.result import WrittenFile
from lakeward.lake.iceberg.meta.types import FIELD_ID, PATH_ID, POSITION_ID

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID).encode()}),
    ]
)
_DICTIONARY = pa.schema([_SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())), _SCHEMA.field(1)])


def write_deletes(io: FileIO, folder: str, prefix: str, hits: Sequence[Hit]) -> list[tuple[int, DataFile]]:
    """One delete file per spec and partition of the data files it names, ascending by path and position."""
    groups: dict[tuple[int, Record], list[Hit]] = defaultdict(list)
    for hit in hits:
        groups[(hit.spec_id, hit.file.partition)].append(hit)
    delete_files = []
    for (spec_id, partition), group in groups.items():
        path = f"{folder}/{prefix}d-{uuid.uuid4().hex[:12]}.parquet"
        delete_files.append((spec_id, _write(io, path, partition, sorted(group, key=lambda h: h.file.file_path))))
    return delete_files


def _write(io: FileIO, path: str, partition: Record, hits: list[Hit]) -> DataFile:
    paths = [h.file.file_path for h in hits]
    positions = np.concatenate([h.positions for h in hits])
    index = np.repeat(np.arange(len(hits), dtype=np.int32), [len(h.positions) for h in hits])
    column = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(paths))
    table = pa.Table.from_arrays([column, pa.array(positions)], schema=_DICTIONARY)
    with io.new_output(path).create(overwrite=True) as out:
        # Plain strings in the file: iceberg-rust refuses large_string, hence no Arrow schema either.
        with pq.ParquetWriter(
            out, _DICTIONARY, compression="zstd", use_dictionary=["file_path"], store_schema=False
        ) as writer:
            writer.write_table(table)
        size = out.tell()
    ids = (PATH_ID, POSITION_ID)
    written = WrittenFile(
        path=path,
        record_count=len(positions),
        size_bytes=size,
        first_offset=0,
        last_offset=0,
        value_counts=dict.fromkeys(ids, len(positions)),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds={PATH_ID: paths[0].encode(), POSITION_ID: struct.pack("<q", int(positions.min()))},
        upper_bounds={PATH_ID: paths[-1].encode(), POSITION_ID: struct.pack("<q", int(positions.max()))},
        split_offsets=[4],
    )
    return written.data_file(partition, DataFileContent.POSITION_DELETES)
