# SPDX-License-Identifier: Apache-2.0
"""Our compaction as design.md 6.8 has it, scripted on the lake's own classes: maintenance has none yet, the protocol
does.

It writes every live row of the head it planned on into new files, and commits them in place of the old ones on whatever
head is there by then: with token and offsets copied, on the fence number it planned on, and with the deletes that came
in between carried over by offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile

from lakeward.errors import CommitConflict
from lakeward.lake.iceberg.commit.change import FileChange, NewFile
from lakeward.lake.iceberg.commit.deletes import write_deletes
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.commit.newfiles import data_candidates
from lakeward.lake.iceberg.commit.resolve import resolve
from lakeward.lake.iceberg.committer import IcebergLakeCommitter
from lakeward.lake.iceberg.datafile.location import data_folder, round_prefix
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.meta.manifests import FileKey, file_key, load_entries, load_manifests
from lakeward.lake.iceberg.scan.snapshotfiles import DeleteEntry
from lakeward.model.bucket import Bucket
from lakeward.model.ids import RoundId, SnapshotId, new_round_id
from lakeward.model.intent import Intent
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET, TIMESTAMP
from lakeward.model.side import COMPACT
from lakeward.model.split import LogSplit
from lakeward.spi.lake import CommitProperties, Committable, Precondition, WriteTask

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

BUCKET = Bucket("", 0)
"""The stage's tables have one."""


class CompactionCommitter(IcebergLakeCommitter):
    """New files in, `dropped` ones out with the deletes that may name them, in one snapshot."""

    dropped: frozenset[str] = frozenset()

    def rewrite(self, result: bytes, gone: OffsetSet, base: LakeBase) -> Committable:
        """`gone`: rows of the new files that a round has deleted since they were read."""
        assert base.token is not None
        ground = self.load_ground(base, base.token)
        files = data_candidates(ground.table, [WriteResult.from_bytes(result)])
        metadata = ground.table.metadata
        hits = resolve({BUCKET: gone}, files).hits
        folder = data_folder(metadata.location, metadata.properties)
        deletes = write_deletes(ground.table.io, folder, round_prefix(RoundId(base.token)), hits)
        properties = CommitProperties(
            round_id=RoundId(base.token),
            epoch=int(base.epoch),
            job="compaction",
            offsets=dict(base.offsets),
            generation=base.generation,
        )
        change = FileChange(
            data=tuple(NewFile(c.spec_id, c.file) for c in files),
            deletes=tuple(NewFile(spec_id, file) for spec_id, file in deletes),
            drop=frozenset(self._dropped_keys(ground)),
        )
        return self.build(ground, properties, change, rows_gone=change.rows)

    def _dropped_keys(self, ground: CommitGround) -> Iterator[FileKey]:
        io = ground.table.io
        for manifest in load_manifests(io, ground.head):
            for entry in load_entries(io, manifest):
                if self._is_dropped(manifest, entry):
                    yield file_key(entry.data_file)

    def _is_dropped(self, manifest: ManifestFile, entry: ManifestEntry) -> bool:
        if manifest.content == ManifestContent.DATA:
            return entry.data_file.file_path in self.dropped
        delete = DeleteEntry(entry.data_file, manifest.partition_spec_id, entry.sequence_number or 0)
        return any(delete.may_name(path) for path in self.dropped)


class Compaction:
    """`write` and `commit` are the model's two steps. `weak` switches off what the committer would not do."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.round_id = stage, new_round_id()
        self.info = stage.world.store.load_tables()[0]
        self.committer = CompactionCommitter(stage.lake.connection, self.info)
        self.reader = stage.lake.open_reader(self.info)
        self.base = LakeBase()
        self.sources: frozenset[str] = frozenset()
        self.live = OffsetSet()
        self.result: bytes | None = None
        self.landed = False

    def write(self) -> Compaction:
        self.base = self.reader.load_base()
        head = self._head(self.base)
        self.sources = frozenset(f.path for f in self.reader.files(head))
        self._record_intent()
        names = [*self.info.schema.names, OFFSET, TIMESTAMP]
        split = LogSplit(bucket=BUCKET, range=OffsetRange(0, self.base.offsets[BUCKET]))
        handle = self.committer.begin(self.round_id)
        writer = self.stage.lake.open_writer(
            WriteTask(round_id=self.round_id, table=self.info, split=split, attempt=0, handle=handle)
        )
        for batch in self.reader.scan(head, columns=names):
            writer.write(batch)
        self.live = self._live(head)
        self.result = writer.complete()
        return self

    def _record_intent(self) -> None:
        self.stage.world.coordinator.record_intent(
            Intent(
                round_id=self.round_id,
                table_id=self.info.table_id,
                prefix=self.committer.prefix(self.round_id),
                token=self.base.token,
                fence=self.base.fence,
                recorded_at_ms=self.stage.clock.now_ms(),
                kind=COMPACT,
            )
        )

    def commit(self) -> None:
        """Gives up when its sources are gone, or when somebody fenced."""
        base = self.reader.load_base()
        if not self.sources <= {f.path for f in self.reader.files(self._head(base))}:
            return
        self.committer.dropped = self.sources
        weak = self.stage.weak
        gone = OffsetSet() if weak.off("carry_over") else self.live.minus(self._live(self._head(base)))
        fence = base.fence if weak.off("compaction_fenced") else self.base.fence
        assert self.result is not None
        committable = self.committer.rewrite(self.result, gone, base)
        try:
            self.committer.commit(committable, Precondition(table_id=self.info.table_id, token=base.token, fence=fence))
        except CommitConflict:
            return
        self.landed = True

    def _live(self, head: SnapshotId) -> OffsetSet:
        found = [b.column(OFFSET).to_numpy() for b in self.reader.scan(head, columns=[OFFSET])]
        return OffsetSet(np.concatenate(found)) if found else OffsetSet()

    def _head(self, base: LakeBase) -> SnapshotId:
        assert base.head is not None
        return base.head
