# SPDX-License-Identifier: Apache-2.0
"""Files that may hold offsets: by their bounds, or because they say none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus

from lakeward.lake.iceberg.meta.manifests import LAYOUT
from lakeward.lake.iceberg.scan.files import IndexedFile, ManifestFiles
from lakeward.model import Bucket, OffsetSet

BUCKETS = st.builds(Bucket, st.just(""), st.integers(0, 2))
BOUNDS = st.tuples(st.integers(-1, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))
FILES = st.lists(st.tuples(st.none() | BUCKETS, st.none() | BOUNDS), max_size=8)
WANTED = st.dictionaries(BUCKETS, st.sets(st.integers(0, 40), min_size=1, max_size=5))


@given(FILES, WANTED)
def test_files_that_may_hold_an_offset(
    files: list[tuple[Bucket | None, tuple[int, int] | None]], wanted: dict[Bucket, set[int]]
) -> None:
    indexed = [IndexedFile(_entry(n), 0, bucket, *(bounds or (None, None))) for n, (bucket, bounds) in enumerate(files)]
    held = ManifestFiles(tuple(indexed)).holding({b: OffsetSet(offsets) for b, offsets in wanted.items()})
    expected = {
        f.file.file_path
        for f, (bucket, bounds) in zip(indexed, files, strict=True)
        if bucket is None
        or (bucket in wanted and (bounds is None or any(bounds[0] <= o <= bounds[1] for o in wanted[bucket])))
    }
    assert sorted(f.file.file_path for f in held) == sorted(expected)


def _entry(number: int) -> ManifestEntry:
    file = DataFile.from_args(
        _table_format_version=LAYOUT,
        content=DataFileContent.DATA,
        file_path=f"file:///t/{number}.parquet",
        file_format=FileFormat.PARQUET,
        record_count=1,
        file_size_in_bytes=1,
    )
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file)
