# SPDX-License-Identifier: Apache-2.0
"""What writers' results become in a commit: data files (candidates too: a later sub-split may replace their rows),
files of keys, and rows that a later result's keys delete in the same round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from lakeward.lake.iceberg.commit.change import NewFile
from lakeward.lake.iceberg.commit.equality import find_same_round, key_ids
from lakeward.lake.iceberg.commit.resolve import Candidate, Hit
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.meta.partition import partition_record
from lakeward.model import Bucket


def data_candidates(table: Table, results: Sequence[WriteResult]) -> list[Candidate]:
    spec, schema = table.metadata.spec(), table.metadata.schema()
    candidates = []
    for result in results:
        partition = partition_record(spec, schema, result.bucket)
        for file in result.files:
            load = lambda f=file: f.offset_set().values  # noqa: E731
            new_file = file.data_file(partition)
            candidates.append(
                Candidate(new_file, spec.spec_id, result.bucket, file.first_offset, file.last_offset, load)
            )
    return candidates


def key_files(table: Table, results: Sequence[WriteResult]) -> list[NewFile]:
    """Equality deletes, in the partition of the split that gave them."""
    spec, schema = table.metadata.spec(), table.metadata.schema()
    return [
        NewFile(
            spec.spec_id,
            file.data_file(
                partition_record(spec, schema, result.bucket), DataFileContent.EQUALITY_DELETES, key_ids(schema)
            ),
        )
        for result in results
        for file in result.keys
    ]


def same_round_hits(table: Table, results: Sequence[WriteResult]) -> list[Hit]:
    """Rows that an earlier result of the bucket wrote and a later one's keys delete. Results are in offset order."""
    spec, schema = table.metadata.spec(), table.metadata.schema()
    older: dict[Bucket, list[Hit]] = {}
    hits: list[Hit] = []
    for result in results:
        before = older.setdefault(result.bucket, [])
        hits += find_same_round(table.io, schema, result.keys, before)
        partition = partition_record(spec, schema, result.bucket)
        before += [Hit(f.data_file(partition), spec.spec_id, np.empty(0, np.int64)) for f in result.files]
    return hits
