# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors as bytes: what is written is read again, by us and by PyIceberg, and damage is found."""

from __future__ import annotations

import numpy as np
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from lakeward.errors import LakeTampered
from lakeward.lake.iceberg.datafile.puffin import decode_vector, encode_puffin, encode_vector

FIRST, SECOND = np.array([0, 3, 70_000, 2**33], np.int64), np.arange(10, 5_000)


def test_every_blob_lies_where_the_file_says() -> None:
    body, blobs = encode_puffin([("file:/a.parquet", FIRST), ("file:/b.parquet", SECOND)])
    found = [decode_vector(body[b.offset : b.offset + b.length], "f").tolist() for b in blobs]
    assert found == [FIRST.tolist(), SECOND.tolist()]
    assert [(b.data_file, b.count) for b in blobs] == [("file:/a.parquet", 4), ("file:/b.parquet", 4_990)]
    vectors = deletion_vectors_from_puffin_file(PuffinFile(body))
    assert {v.referenced_data_file: v.to_vector().to_pylist() for v in vectors} == {
        "file:/a.parquet": FIRST.tolist(),
        "file:/b.parquet": SECOND.tolist(),
    }


@pytest.mark.parametrize("at", [0, 5, 9, -1])
def test_a_damaged_vector_is_refused(at: int) -> None:
    blob = bytearray(encode_vector(FIRST))
    blob[at] ^= 1
    with pytest.raises(LakeTampered, match=r"deletion vector in some\.puffin"):
        decode_vector(bytes(blob), "some.puffin")
