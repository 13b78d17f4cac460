# SPDX-License-Identifier: Apache-2.0
"""Rows of a table taken apart by partition and by bucket. Rows of one piece keep their order. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest, InvalidRows
from lakeward.model import PartitionKey, TableInfo, partition_name


def split_partitions(table: TableInfo, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Each partition's rows, under its name; all of them under none where the table has no partitions. Raises
    `InvalidRows` for a row without a partition to go to."""
    keys = table.descriptor.partitioning
    if not keys:
        yield "", rows
        return
    texts = [_texts(table, key, rows.column(key.column)) for key in keys]
    encoded = pc.binary_join_element_wise(*texts, "\x00").dictionary_encode().combine_chunks()
    names = [_partition_name(table, text, encoded) for text in encoded.dictionary.to_pylist()]
    for index, name in enumerate(names):
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(encoded.indices, index))


def split_buckets(rows: pa.Table, numbers: np.ndarray, count: int) -> Iterator[tuple[int, pa.Table]]:
    """One stable sort by bucket, then slices: a gather per column, whatever the number of buckets."""
    sizes = np.bincount(numbers, minlength=count)
    if sizes.max() == rows.num_rows:
        yield int(sizes.argmax()), rows
        return
    gathered = rows.take(pa.array(np.argsort(numbers, kind="stable")))
    start = 0
    for number, size in enumerate(sizes.tolist()):
        if size:
            yield number, gathered.slice(start, size)
            start += size


def _partition_name(table: TableInfo, text: str, encoded: pa.DictionaryArray) -> str:
    values = text.split("\x00")
    try:
        for key, value in zip(table.descriptor.partitioning, values, strict=False):
            key.check(value)
        return partition_name(values)
    except InvalidRequest as error:
        row = pc.index(encoded.cast(pa.string()), text).as_py()
        keys = ", ".join(table.descriptor.partition_keys)
        raise InvalidRows(table=str(table.path), row=row, column=keys, reason=str(error)) from error


def _texts(table: TableInfo, key: PartitionKey, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise InvalidRows(table=str(table.path), row=row, column=key.column, reason="null in a partition key")
    return key.texts(values)
