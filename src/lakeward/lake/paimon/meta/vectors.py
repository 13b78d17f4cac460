# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors that other engines wrote: positions of a file's rows that are no more. Rounds write none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.deletionvectors.deletion_vector import DeletionVector
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.source.deletion_file import DeletionFile

from lakeward.lake.metadatabounds import check_positions
from lakeward.lake.paimon.meta.boundedfiles import BoundedManifests

_NONE = np.array([], np.int64)


def load_vectors(lake_table: Any, index_manifest: str | None) -> dict[str, Any]:
    """By the name of their data file: where each vector lies."""
    index = IndexManifestFile(lake_table)
    index.file_io = BoundedManifests(lake_table)
    found = index.read(index_manifest) if index_manifest else []
    entries = [e for e in found if e.index_file.index_type == IndexManifestFile.DELETION_VECTORS_INDEX]
    paths = lake_table.path_factory()
    return {
        name: DeletionFile(
            paths.bucket_index_path(tuple(e.partition.values), e.bucket, e.index_file, lake_table.file_io),
            vector.offset,
            vector.length,
            vector.cardinality,
        )
        for e in entries
        for name, vector in (e.index_file.dv_ranges or {}).items()
    }


def load_dead(lake_table: Any, vector: Any | None) -> npt.NDArray[np.int64]:
    """Positions, ascending."""
    if vector is None:
        return _NONE
    found = DeletionVector.read(lake_table.file_io, vector)
    check_positions(found.get_cardinality())
    return np.sort(np.fromiter(found.bit_map(), np.int64))


def without_dead(rows: pa.Table, dead: npt.NDArray[np.int64], start: int) -> pa.Table:
    """`start`: the position of the first row in its file."""
    first, last = np.searchsorted(dead, (start, start + rows.num_rows))
    if first == last:
        return rows
    live = np.ones(rows.num_rows, np.bool_)
    live[dead[first:last] - start] = False
    return rows.filter(pa.array(live))
