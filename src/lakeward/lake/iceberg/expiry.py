# SPDX-License-Identifier: Apache-2.0
"""Which snapshots may go, and which files go with them. Pure but for reading manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.ancestry import walk
from lakeward.lake.iceberg.kept import Kept
from lakeward.lake.iceberg.location import canonical
from lakeward.lake.iceberg.manifests import load_manifests, read_entries
from lakeward.lake.iceberg.mapping import DEFAULTS
from lakeward.lake.iceberg.summary import summary_of
from lakeward.spi.lake import OFFSETS_KEY, TAG

AGE_KEY = "history.expire.max-snapshot-age-ms"
KEEP_KEY = "history.expire.min-snapshots-to-keep"


def plan_expiry(metadata: TableMetadata, now_ms: int) -> list[int]:
    """Snapshots beyond age and number, oldest first. Kept: what any reference points to, all of other branches, and whatever lies
    between main's head and our tag: cutting that chain would look like a rollback."""
    cutoff = now_ms - _number(metadata.properties, AGE_KEY)
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    chain = walk(metadata).chain
    kept |= {s.snapshot_id for s in chain[: max(1, _number(metadata.properties, KEEP_KEY))]}
    kept |= _down_to_tag(metadata, chain)
    for name, ref in metadata.refs.items():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != MAIN_BRANCH:
            kept |= {s.snapshot_id for s in walk(metadata, ref.snapshot_id).chain}
    gone = [s for s in metadata.snapshots if s.snapshot_id not in kept and s.timestamp_ms < cutoff]
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


_PATHS: Kept[frozenset[str]] = Kept(1_000_000, len)
"""Data and delete files per manifest, removed ones included."""


class Reachable:
    """Files that snapshots reference: lists, manifests, offset files, data and delete files, in canonical spelling."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def files(self, snapshots: Iterable[Snapshot]) -> set[str]:
        found: set[str] = set()
        manifests: dict[str, ManifestFile] = {}
        for snapshot in snapshots:
            found.add(canonical(snapshot.manifest_list))
            offsets = summary_of(snapshot).get(OFFSETS_KEY, "{")
            if not offsets.lstrip().startswith("{"):
                found.add(canonical(offsets))
            manifests |= {m.manifest_path: m for m in load_manifests(self._io, snapshot)}
        found |= {canonical(path) for path in manifests}
        return found.union(*(self._paths(m) for m in manifests.values()))

    def _paths(self, manifest: ManifestFile) -> frozenset[str]:
        def read() -> frozenset[str]:
            return frozenset(canonical(e.data_file.file_path) for e in read_entries(self._io, manifest))

        return _PATHS.load(manifest.manifest_path, read)


def only_in(io: FileIO, gone: list[Snapshot], remaining: list[Snapshot]) -> set[str]:
    """Files that the first reference and the second do not."""
    reachable = Reachable(io)
    return reachable.files(gone) - reachable.files(remaining)
