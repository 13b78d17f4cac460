# SPDX-License-Identifier: Apache-2.0
"""What a data file's footer says to a scan. Data files never change: footers are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.iceberg.scan.project import names_by_id
from lakeward.lake.kept import Kept

_CODED_BYTES = 3
"""Per value, at most: a text that stands in the file by itself takes four bytes and its letters, a number in a
dictionary less than three."""

_CODED_ROWS = 10_000


@dataclass(frozen=True)
class Footer:
    """`names`: columns by field id. `coded`: text columns that stand as numbers of a dictionary in every row group.
    Read as such, their rows are dropped and made texts in two thirds of the time."""

    metadata: pq.FileMetaData
    names: Mapping[int, str]
    coded: frozenset[str]

    @classmethod
    def load(cls, path: str, source: Any) -> Footer:
        """`source`: the file itself, read where its footer is not kept."""
        return _FOOTERS.load(path, lambda: cls.of(pq.read_metadata(source)))

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> Footer:
        schema = metadata.schema.to_arrow_schema()
        return cls(metadata, names_by_id(schema), frozenset(_coded(metadata, schema)))


def _coded(metadata: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    if metadata.num_rows < _CODED_ROWS:
        return []
    texts = {f.name for f in schema if f.type == pa.string()}
    leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    return [n for n in texts if n in leaves and all(_is_coded(g.column(leaves[n])) for g in groups)]


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    is_small: bool = chunk.total_uncompressed_size <= _CODED_BYTES * chunk.num_values
    return chunk.has_dictionary_page and is_small


_FOOTERS: Kept[Footer] = Kept(64_000_000, lambda footer: footer.metadata.serialized_size)
