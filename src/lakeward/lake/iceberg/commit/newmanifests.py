# SPDX-License-Identifier: Apache-2.0
"""The manifests of a commit: one per spec and content, for new files, for what is left beside dropped ones and for the
entries of small manifests; the others merged by size tiers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile

from lakeward.errors import LakeTampered
from lakeward.lake.iceberg.commit.change import IcebergChange
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.meta.manifests import (
    FileKey,
    ManifestTarget,
    added,
    existing,
    file_key,
    is_small,
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


def write_manifests(target: ManifestTarget, ground: IcebergGround, change: IcebergChange) -> NewManifests:
    """Raises `LakeTampered` when a file to be dropped is not live: the caller looked at the same head."""
    metadata, head = ground.table.metadata, load_manifests(target.io, ground.head)
    kept, parts = _take_apart(target, ground, head, change)
    for manifest in [m for m in kept if is_small(m) and _key(m) in parts]:
        parts[_key(manifest)].stay += existing(load_entries(target.io, manifest))
        kept.remove(manifest)
    specs, sequence = metadata.specs(), metadata.next_sequence_number()
    written = []
    for (content, spec_id), part in sorted(parts.items(), key=lambda item: item[0]):
        entries = [*part.new, *part.stay, *removed(part.gone, target.snapshot_id)]
        written.append(write_manifest(target, specs[spec_id], content, entries))
        remember(written[-1], part.new, part.stay, sequence)
    dropped = [e.data_file for part in parts.values() for e in part.gone]
    return NewManifests([*written, *merge_manifests(target, kept, specs)], dropped)


_Key = tuple[ManifestContent, int]
"""Content and partition spec: what all entries of a manifest share."""


@dataclass
class _Part:
    """Entries of one new manifest: new files, what is left of manifests that name a dropped file, and of small ones, as
    each manifest costs readers an open; and the dropped files."""

    new: list[ManifestEntry] = field(default_factory=list)
    stay: list[ManifestEntry] = field(default_factory=list)
    gone: list[ManifestEntry] = field(default_factory=list)


def _take_apart(
    target: ManifestTarget, ground: IcebergGround, head: list[ManifestFile], change: IcebergChange
) -> tuple[list[ManifestFile], dict[_Key, _Part]]:
    """The manifests that name no dropped file, and what is to be written."""
    parts: dict[_Key, _Part] = defaultdict(_Part)
    for content, files in ((ManifestContent.DATA, change.data), (ManifestContent.DELETES, change.delete_files)):
        for n in files:
            parts[content, n.spec_id].new += added([(n.file, n.sequence)], target.snapshot_id)
    kept, left = list[ManifestFile](), set(change.drop)
    for manifest in head:
        entries = load_entries(target.io, manifest) if left else ()
        gone = {file_key(e.data_file) for e in entries} & left
        if not gone:
            kept.append(manifest)
            continue
        part = parts[_key(manifest)]
        part.gone += [e for e in entries if file_key(e.data_file) in gone]
        part.stay += existing(e for e in entries if file_key(e.data_file) not in gone)
        left -= gone
    if left:
        raise _not_live(ground, min(left, key=str))
    return kept, parts


def _key(manifest: ManifestFile) -> _Key:
    return manifest.content, manifest.partition_spec_id


def _not_live(ground: IcebergGround, key: FileKey) -> LakeTampered:
    head = "none" if ground.head is None else str(ground.head.snapshot_id)
    return LakeTampered(
        table=".".join(ground.table.name()), snapshot=head, what=f"file {key[0]}", reason="it is not live"
    )
