# SPDX-License-Identifier: Apache-2.0
"""Which snapshots may go, and which files go with them. Pure but for reading manifests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.meta.ancestry import walk
from lakeward.lake.iceberg.meta.location import canonical, is_ours
from lakeward.lake.iceberg.meta.manifests import load_list, read_entries
from lakeward.lake.iceberg.meta.mapping import DEFAULTS
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.kept import Kept
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.ids import SnapshotId
from lakeward.spi.snapshotkeys import OFFSETS_KEY, OWN_OFFSETS_KEY, TAG

AGE_KEY = "history.expire.max-snapshot-age-ms"
KEEP_KEY = "history.expire.min-snapshots-to-keep"


def plan_expiry(metadata: TableMetadata, now_ms: int, coming: int = 0) -> list[int]:
    """Snapshots beyond age and number, oldest first. Age counts from when a snapshot was followed by another: the last
    one before a quiet night was the table until the morning. Kept: what any reference points to, all of other branches,
    and whatever lies between main's head and our tag: cutting that chain would look like a rollback. `coming`:
    snapshots that the commit which takes them out adds to main."""
    cutoff = now_ms - _number(metadata.properties, AGE_KEY)
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    chain = walk(metadata).chain
    kept |= {s.snapshot_id for s in chain[: max(1, _number(metadata.properties, KEEP_KEY) - coming)]}
    kept |= _down_to_tag(metadata, chain)
    for name, ref in metadata.refs.items():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != MAIN_BRANCH:
            kept |= {s.snapshot_id for s in walk(metadata, ref.snapshot_id).chain}
    since = {s.snapshot_id: s.timestamp_ms for s in metadata.snapshots}
    for snapshot in metadata.snapshots:
        if (parent := snapshot.parent_snapshot_id) in since:
            since[parent] = max(since[parent], snapshot.timestamp_ms)
    gone = [s for s in metadata.snapshots if s.snapshot_id not in kept and since[s.snapshot_id] < cutoff]
    return [s.snapshot_id for s in sorted(gone, key=lambda s: s.sequence_number or 0)]


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


def _number(properties: Mapping[str, str], key: str) -> int:
    text = properties.get(key, DEFAULTS[key])
    return int(text) if text.isdigit() else int(DEFAULTS[key])


def expiring(metadata: TableMetadata, ids: Sequence[int]) -> list[ExpiringSnapshot]:
    """With what it takes to find their files once the metadata has forgotten them."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    statistics: dict[int, list[str]] = {}
    for statistics_file in (*metadata.statistics, *getattr(metadata, "partition_statistics", ())):
        statistics.setdefault(statistics_file.snapshot_id, []).append(statistics_file.statistics_path)
    return [
        ExpiringSnapshot(snapshot_id=SnapshotId(str(i)), trace=_trace(by_id[i], statistics.get(i, [])))
        for i in ids
        if by_id[i].manifest_list
    ]


def _trace(snapshot: Snapshot, statistics: list[str]) -> str:
    # An offsets file that another system wrote is that system's.
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
    """Files of snapshots in canonical spelling, by who names them: manifests name `content`, lists name `manifests`."""

    content: frozenset[str]
    manifests: frozenset[str]
    lists: frozenset[str]

    @property
    def all(self) -> set[str]:
        return {*self.content, *self.manifests, *self.lists}

    def deletion_order(self, kept: set[str]) -> list[str]:
        """What is named before what names it: after a crash in the middle the rest is still found."""
        return [path for layer in (self.content, self.manifests, self.lists) for path in sorted(layer - kept)]


class Reachable:
    """Reads what snapshots reference."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def files(self, metadata: TableMetadata) -> set[str]:
        """Everything that the retained snapshots need. A manifest that cannot be read is raised: nothing may be deleted
        then.
        """
        beside = {canonical(f) for s in metadata.snapshots for f in _offset_files(s)}
        beside |= {
            canonical(s.statistics_path) for s in (*metadata.statistics, *getattr(metadata, "partition_statistics", ()))
        }
        manifests = self._manifests(s.manifest_list for s in metadata.snapshots)
        lists = {canonical(s.manifest_list) for s in metadata.snapshots}
        return {*beside, *lists, *map(canonical, manifests)}.union(*(self._paths(m) for m in manifests.values()))

    def traced(self, snapshots: Iterable[ExpiringSnapshot]) -> Files:
        """What gone snapshots referenced, as far as it is still there to be read."""
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
    """Files that the gone snapshots referenced and no retained one does, in the order in which
    they are to be deleted.
    """
    reachable = Reachable(io)
    return reachable.traced(gone).deletion_order(reachable.files(metadata))
