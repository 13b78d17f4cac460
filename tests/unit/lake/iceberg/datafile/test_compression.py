# SPDX-License-Identifier: Apache-2.0
"""The compression level of Parquet files."""

from __future__ import annotations

import pytest

from lakeward.lake.iceberg.datafile.parquet import ParquetOptions

CODEC, LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"


@pytest.mark.parametrize(
    ("properties", "level"),
    [
        ({CODEC: "gzip"}, 6),
        ({CODEC: "GZIP", LEVEL: "null"}, 6),
        ({CODEC: "gzip", LEVEL: "9"}, 9),
        ({CODEC: "zstd"}, None),
        ({}, None),
    ],
)
def test_gzip_has_a_level_that_is_worth_its_time(properties: dict[str, str], level: int | None) -> None:
    assert ParquetOptions.parse(properties).level == level
