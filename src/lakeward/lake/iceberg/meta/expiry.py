# SPDX-License-Identifier: Apache-2.0
"""Plans which snapshots expire, and which files are deleted with them. Pure except for reading manifests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.meta.location import canonical, is_ours
from lakeward.lake.iceberg.meta.manifests import load_list, read_entries
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.meta.summary import summary_of, walk
from lakeward.lake.kept import Kept
from lakeward.model import ExpiringSnapshot, SnapshotId
from lakeward.spi import OFFSETS_KEY, OWN_OFFSETS_KEY, TAG

AGE_KEY = "history.expire.max-snapshot-age-ms"


def find_superseded(metadata: TableMetadata, kept: int) -> list[tuple[SnapshotId, int]]:
    """Returns snapshots that may expire, with the time when the next one followed: a snapshot before a quiet night was
    the table until the morning. Retained: a number of main's newest, snapshots with a reference, all of other branches,
    and those between main's head and our tag: cutting that chain would look like a rollback."""
    retained = {ref.snapshot_id for ref in metadata.refs.values()}
    chain = walk(metadata).chain
    retained |= {s.snapshot_id for s in chain[:kept]}
    retained |= _down_to_tag(metadata, chain)
    for name, ref in metadata.refs.items():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != MAIN_BRANCH:
            retained |= {s.snapshot_id for s in walk(metadata, ref.snapshot_id).chain}
    since = {s.snapshot_id: s.timestamp_ms for s in metadata.snapshots}
    for snapshot in metadata.snapshots:
        if (parent := snapshot.parent_snapshot_id) in since:
            since[parent] = max(since[parent], snapshot.timestamp_ms)
    old = [s for s in metadata.snapshots if s.snapshot_id not in retained and s.manifest_list]
    old.sort(key=lambda s: (since[s.snapshot_id], s.sequence_number or 0))
    return [(SnapshotId(str(s.snapshot_id)), since[s.snapshot_id]) for s in old]


def _down_to_tag(metadata: TableMetadata, chain: Iterable[Snapshot]) -> set[int]:
    tag = metadata.refs.get(TAG)
    if tag is None:
        return set()
    ids: list[int] = []
    for snapshot in chain:
        ids.append(snapshot.snapshot_id)
        if snapshot.snapshot_id == tag.snapshot_id:
            return set(ids)
    return set()


def expiring(metadata: TableMetadata, snapshot_id: int) -> ExpiringSnapshot:
    """Describes a snapshot so that its files can be found once the metadata has removed it."""
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or not snapshot.manifest_list:
        return ExpiringSnapshot(snapshot_id=SnapshotId(str(snapshot_id)))
    files = (*metadata.statistics, *getattr(metadata, "partition_statistics", ()))
    statistics = [f.statistics_path for f in files if f.snapshot_id == snapshot_id]
    return ExpiringSnapshot(snapshot_id=SnapshotId(str(snapshot_id)), trace=_trace(snapshot, statistics))


def _trace(snapshot: Snapshot, statistics: list[str]) -> str:
    # Offsets files of another system are left to that system.
    return json.dumps(
        {"list": snapshot.manifest_list, "files": [*filter(is_ours, _offset_files(snapshot)), *statistics]}
    )


def _offset_files(snapshot: Snapshot) -> list[str]:
    summary = summary_of(snapshot)
    texts = [summary[key] for key in (OFFSETS_KEY, OWN_OFFSETS_KEY) if key in summary]
    return [text for text in texts if not text.lstrip().startswith("{")]


_PATHS: Kept[frozenset[str]] = Kept(1_000_000, len)
"""Data and delete files per manifest, removed ones included."""


@dataclass(frozen=True)
class Files:
    """Files of snapshots in canonical spelling, by the file that names them: manifests name `content`, lists name
    `manifests`."""

    content: frozenset[str]
    manifests: frozenset[str]
    lists: frozenset[str]

    @property
    def all(self) -> set[str]:
        return {*self.content, *self.manifests, *self.lists}

    def deletion_order(self, kept: set[str]) -> list[str]:
        """Returns files so that a file comes before those that name it: after a crash the rest can still be found."""
        return [path for layer in (self.content, self.manifests, self.lists) for path in sorted(layer - kept)]


class Reachable:
    """Reads the files that snapshots reference."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def files(self, metadata: TableMetadata) -> set[str]:
        """Returns all files that the retained snapshots need. Raises if a manifest cannot be read: no file may be
        deleted then."""
        beside = {canonical(f) for s in metadata.snapshots for f in _offset_files(s)}
        beside |= {
            canonical(s.statistics_path) for s in (*metadata.statistics, *getattr(metadata, "partition_statistics", ()))
        }
        manifests = self._manifests(s.manifest_list for s in metadata.snapshots)
        lists = {canonical(s.manifest_list) for s in metadata.snapshots}
        return {*beside, *lists, *map(canonical, manifests)}.union(*(self._paths(m) for m in manifests.values()))

    def traced(self, snapshots: Iterable[ExpiringSnapshot]) -> Files:
        """Returns the files that removed snapshots referenced, as far as their metadata still exists."""
        traces = [json.loads(s.trace) for s in snapshots if s.trace]
        lists, content = {t["list"] for t in traces}, {canonical(f) for t in traces for f in t["files"]}
        manifests: dict[str, ManifestFile] = {}
        for path in lists:
            with suppress(FileNotFoundError):
                manifests |= self._manifests([path])
        for manifest in manifests.values():
            with suppress(FileNotFoundError):
                content |= self._paths(manifest)
        return Files(frozenset(content), frozenset(map(canonical, manifests)), frozenset(map(canonical, lists)))

    def _manifests(self, lists: Iterable[str]) -> dict[str, ManifestFile]:
        return {m.manifest_path: m for path in lists for m in load_list(self._io, path)}

    def _paths(self, manifest: ManifestFile) -> frozenset[str]:
        def read() -> frozenset[str]:
            return frozenset(canonical(e.data_file.file_path) for e in read_entries(self._io, manifest))

        return _PATHS.load(check_path(self._io, manifest.manifest_path), read)


def only_in(io: FileIO, gone: Sequence[ExpiringSnapshot], metadata: TableMetadata) -> list[str]:
    """Returns files that only the removed snapshots referenced, in the order to delete them."""
    reachable = Reachable(io)
    return reachable.traced(gone).deletion_order(reachable.files(metadata))
