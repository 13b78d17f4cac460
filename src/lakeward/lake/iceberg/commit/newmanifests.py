# SPDX-License-Identifier: Apache-2.0
"""The manifests of a commit: one per spec and content for new files, one for those that name a dropped file, without
it, the others merged by size tiers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile

from lakeward.errors import LakeTampered
from lakeward.lake.iceberg.commit.change import FileChange, NewFile
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.meta.manifests import (
    CACHE,
    FileKey,
    ManifestTarget,
    added,
    existing,
    file_key,
    load_entries,
    load_manifests,
    merge_manifests,
    remember,
    removed,
    write_manifest,
)


@dataclass(frozen=True)
class NewManifests:
    """`dropped`: the files that left."""

    manifests: list[ManifestFile]
    dropped: list[DataFile]


def write_manifests(target: ManifestTarget, ground: CommitGround, change: FileChange) -> NewManifests:
    """Raises `LakeTampered` when a file to be dropped is not live: the caller looked at the same head."""
    specs, head = ground.table.metadata.specs(), load_manifests(target.io, ground.head)
    new = _write_new(target, ground, change)
    kept, left = list[ManifestFile](), set(change.drop)
    broken: dict[tuple[ManifestContent, int], _Broken] = defaultdict(_Broken)
    for manifest in head:
        entries = load_entries(target.io, manifest) if left else ()
        gone = [e for e in entries if file_key(e.data_file) in left]
        if not gone:
            kept.append(manifest)
            continue
        keys = {file_key(e.data_file) for e in gone}
        group = broken[manifest.content, manifest.partition_spec_id]
        group.gone += gone
        group.stay += existing(e for e in entries if file_key(e.data_file) not in keys)
        left -= keys
    if left:
        raise _not_live(ground, min(left, key=str))
    rewritten = []
    for (content, spec_id), group in broken.items():
        listed = [*group.stay, *removed(group.gone, target.snapshot_id)]
        rewritten.append(write_manifest(target, specs[spec_id], content, listed))
        CACHE.put(rewritten[-1].manifest_path, tuple(group.stay))
    dropped = [e.data_file for group in broken.values() for e in group.gone]
    # New manifests are merged by a later commit: until this one lands they have no sequence number.
    return NewManifests([*new, *rewritten, *merge_manifests(target, kept, specs)], dropped)


@dataclass
class _Broken:
    """Entries of manifests that name a dropped file: written anew as one, as each costs readers an open."""

    stay: list[ManifestEntry] = field(default_factory=list)
    gone: list[ManifestEntry] = field(default_factory=list)


def _write_new(target: ManifestTarget, ground: CommitGround, change: FileChange) -> list[ManifestFile]:
    metadata = ground.table.metadata
    specs, sequence = metadata.specs(), metadata.next_sequence_number()
    groups: dict[tuple[ManifestContent, int], list[NewFile]] = defaultdict(list)
    for content, files in ((ManifestContent.DATA, change.data), (ManifestContent.DELETES, change.deletes)):
        for new_file in files:
            groups[(content, new_file.spec_id)].append(new_file)
    manifests = []
    for (content, spec_id), group in sorted(groups.items(), key=lambda item: item[0]):
        entries = added(((n.file, n.sequence) for n in group), target.snapshot_id)
        manifests.append(write_manifest(target, specs[spec_id], content, entries))
        remember(manifests[-1], entries, sequence)
    return manifests


def _not_live(ground: CommitGround, key: FileKey) -> LakeTampered:
    head = "none" if ground.head is None else str(ground.head.snapshot_id)
    return LakeTampered(
        table=".".join(ground.table.name()), snapshot=head, what=f"file {key[0]}", reason="it is not live"
    )
