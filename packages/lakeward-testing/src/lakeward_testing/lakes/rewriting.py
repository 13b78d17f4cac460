# SPDX-License-Identifier: Apache-2.0
"""One rewrite on a lake, step by step, without Spark and without a coordinator: for contract suites and protocol
tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lakeward.model import Bucket, RoundId, TableInfo, new_round_id
from lakeward.spi import (
    LakeSnapshot,
    LakeStorage,
    Precondition,
    PreparedRewrite,
    RewriteGroup,
    RewriteResult,
    RewriteTask,
    SupportsRewrite,
    SupportsRewriteCommit,
)


@dataclass(kw_only=True)
class LakeRewrite:
    """Planned when it is made: all files of a bucket become one, or none. `write`, then `commit`; or `run` for both."""

    lake: LakeStorage
    table: TableInfo
    buckets: tuple[Bucket, ...] | None = None
    is_dropped: bool = False
    round_id: RoundId = field(default_factory=new_round_id)
    results: list[RewriteResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = self.lake.open_reader(self.table)
        committer = self.lake.open_committer(self.table)
        assert isinstance(committer, SupportsRewriteCommit)
        self.committer = committer
        self.base = self.reader.load_base()
        assert self.base.head is not None, "there is nothing to rewrite"
        head = self.reader.load_snapshot(self.base.head)
        assert head is not None
        files = self.reader.files(self.base.head)
        known = sorted({f.bucket for f in files if f.bucket is not None})
        self.groups = [
            RewriteGroup(
                bucket=bucket,
                files=tuple(f for f in files if f.bucket == bucket),
                sequence=head.sequence,
                index=index,
                is_dropped=self.is_dropped,
            )
            for index, bucket in enumerate(known)
            if self.buckets is None or bucket in self.buckets
        ]

    def write(self, is_due: Callable[[], bool] = lambda: False) -> LakeRewrite:
        assert isinstance(self.lake, SupportsRewrite)
        handle = self.committer.begin(self.round_id)
        for group in self.groups:
            task = RewriteTask(round_id=self.round_id, table=self.table, group=group, attempt=0, handle=handle)
            result = self.lake.rewrite(task, is_due)
            self.results += [] if result is None else [result]
        return self

    def prepare(self) -> PreparedRewrite:
        return self.committer.prepare_rewrite(self.results, self.reader.load_base(), self.round_id)

    @property
    def precondition(self) -> Precondition:
        return Precondition(table_id=self.table.table_id, token=self.base.token, fence=self.base.fence)

    def commit(self, prepared: PreparedRewrite | None = None) -> LakeSnapshot:
        committable = (prepared or self.prepare()).committable
        assert committable is not None, "no group is left"
        return self.committer.commit(committable, self.precondition)

    def run(self) -> LakeSnapshot:
        return self.write().commit()
