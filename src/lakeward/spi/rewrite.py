# SPDX-License-Identifier: Apache-2.0
"""A rewrite: data files become fewer ones with the same rows. What is planned, what an executor makes of one group, and
what the driver can commit of it. Planner, executor task and driver are in `lakeward.tiering.compact`.

The way of one rewrite: `LakeReader.load_base`, `load_snapshot` and `files` of that head, a plan; an intent of kind
compaction with `LakeCommitter.prefix(round_id)`; `LakeCommitter.begin(round_id)`; `SupportsRewrite.rewrite` per group,
in executors; then, on each new head, `SupportsRewriteCommit.prepare_rewrite` and `commit` with
`Precondition(fence=...)` of the plan. `LakeCommitter.find(round_id)` answers for a rewrite's id as for a round's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakeward.model import Bucket, RoundId, TableInfo
from lakeward.spi.commit import Committable
from lakeward.spi.lakefile import LakeFile


@dataclass(frozen=True, kw_only=True)
class RewriteGroup:
    """Files of one bucket that become one file, as `LakeReader.files` gave them for the planned snapshot, with the
    deletes that lay on them then. `sequence` is `LakeSnapshot.sequence` of that snapshot: the new file gets it, so that
    deletes by key which came later apply to it, and older ones, which it has applied, do not."""

    bucket: Bucket
    files: tuple[LakeFile, ...]
    sequence: int
    index: int = 0
    """Tells the groups of one rewrite apart, and names their files."""

    is_dropped: bool = False
    """No row of it is kept: nothing is read, and no file comes in its place."""

    is_unplaced: bool = False
    """The files do not record their bucket, and the new one records none: of `bucket` only the partition counts."""


@dataclass(frozen=True, kw_only=True)
class RewriteTask:
    """Everything an executor needs to rewrite one group. `handle` is what `LakeCommitter.begin` returned."""

    round_id: RoundId
    table: TableInfo
    group: RewriteGroup
    attempt: int
    handle: bytes


@dataclass(frozen=True, kw_only=True)
class RewriteResult:
    """Outcome of rewriting one group. `payload` is read only by its plugin: the new files with their offsets, and per
    input the new place of each surviving row. `rows` are the rows written, `bytes_read` and `bytes_written` the sizes
    of files."""

    group: RewriteGroup
    payload: bytes
    rows: int
    bytes_read: int
    bytes_written: int

    @property
    def dropped_rows(self) -> int:
        return sum(f.record_count for f in self.group.files) if self.group.is_dropped else 0


def dropped_group(group: RewriteGroup, payload: bytes) -> RewriteResult:
    """`payload`: the plugin's, of a group without a live row."""
    return RewriteResult(group=group, payload=payload, rows=0, bytes_read=0, bytes_written=0)


def rows_after(results: Iterable[RewriteResult], rows: int | None) -> int | None:
    """Rows of the table after these rewrites, given `rows` before; None if the count is unknown."""
    return None if rows is None else max(0, rows - sum(r.dropped_rows for r in results))


@dataclass(frozen=True, kw_only=True)
class PreparedRewrite:
    """`committable` None: no group is left. `left_out`: indexes of groups that lost an input to somebody else; their
    files are left to orphan removal. `carried`: rows deleted since the plan whose deletes went along."""

    committable: Committable | None
    left_out: tuple[int, ...] = ()
    carried: int = 0
