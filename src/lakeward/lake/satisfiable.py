# SPDX-License-Identifier: Apache-2.0
"""Whether a filter can be true of any row, given what is known of all of them: partition values, bounds of columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

_FORMAT, _NOWHERE = ds.ParquetFileFormat(), fs.LocalFileSystem()


def may_match(filter: pc.Expression, schema: pa.Schema, known: Sequence[pc.Expression]) -> list[bool]:
    """For each of `known` (an expression that holds for every row of something), whether the filter may hold too.

    Arrow simplifies a filter under what is known only for fragments of a dataset, so each fact becomes a fragment that is
    never opened. In doubt the answer is yes."""
    fragments = [_FORMAT.make_fragment(str(at), _NOWHERE, partition_expression=fact) for at, fact in enumerate(known)]
    try:
        kept = ds.FileSystemDataset(fragments, schema, _FORMAT, _NOWHERE).get_fragments(filter=filter)
        possible = {int(f.path) for f in kept}
    except (pa.ArrowException, TypeError, ValueError):
        return [True] * len(known)
    return [at in possible for at in range(len(known))]
