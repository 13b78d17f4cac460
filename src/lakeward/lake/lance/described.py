# SPDX-License-Identifier: Apache-2.0
"""Fragments and their deletion files as the plug point describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakeward.lake.lance.datafile import FileFacts
from lakeward.model.bucket import partition_values
from lakeward.spi.lakefile import LakeDelete, LakeFile


def describe_fragment(fragment: Any, facts: FileFacts, root: str, path: str, keys: Sequence[str]) -> LakeFile:
    """Only Lance's own reader shows its rows."""
    values = () if facts.bucket is None else partition_values(facts.bucket.partition)
    return LakeFile(
        path=path,
        bucket=facts.bucket,
        record_count=fragment.physical_rows,
        size_bytes=sum(file.file_size_bytes or 0 for file in fragment.files),
        offsets=facts.offsets,
        sequence=facts.since,
        deletes=_deletes(fragment, root),
        partition=dict(zip(keys, values, strict=False)),
        is_reader_needed=True,
    )


def _deletes(fragment: Any, root: str) -> tuple[LakeDelete, ...]:
    deletion = fragment.deletion_file
    if deletion is None:
        return ()
    return (
        LakeDelete(
            path=f"{root}/{deletion.path(fragment.id)}",
            content="vector",
            record_count=fragment.num_deletions,
            sequence=deletion.read_version + 1,
        ),
    )
