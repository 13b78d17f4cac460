# SPDX-License-Identifier: Apache-2.0
"""Whether a filter can be true of any row, given what is known of all of them: partition values, bounds of columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs


def may_match(filter: pc.Expression, schema: pa.Schema, known: Sequence[pc.Expression]) -> list[bool]:
    """For each of `known` (an expression that holds for every row of something), whether the filter may hold too.

    Arrow simplifies a filter under what is known only for fragments of a dataset, so each fact becomes a fragment that
    is never opened. In doubt the answer is yes."""
    import pyarrow.dataset as ds  # loads pandas where that is installed: half a second that most processes never need

    parquet, nowhere = ds.ParquetFileFormat(), fs.LocalFileSystem()
    fragments = [parquet.make_fragment(str(at), nowhere, partition_expression=fact) for at, fact in enumerate(known)]
    try:
        kept = ds.FileSystemDataset(fragments, schema, parquet, nowhere).get_fragments(filter=filter)
        possible = {int(f.path) for f in kept}
    except (pa.ArrowException, TypeError, ValueError):
        return [True] * len(known)
    return [at in possible for at in range(len(known))]
