# SPDX-License-Identifier: Apache-2.0
"""Builds the snapshot of a commit: manifests, summary, offsets."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LakeTampered
from lakeward.lake.iceberg.commit.change import IcebergChange
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.meta.location import metadata_folder, round_prefix, sync_files
from lakeward.lake.iceberg.meta.manifests import (
    FileKey,
    ManifestTarget,
    added,
    dropped_columns,
    existing,
    file_key,
    is_small,
    load_entries,
    load_manifests,
    merge_manifests,
    remember,
    removed,
    unnumbered_rows,
    write_manifest,
    write_manifest_list,
)
from lakeward.lake.iceberg.meta.summary import INLINE_LIMIT, summary_of
from lakeward.lake.iceberg.meta.version import find_next_row_id, table_version
from lakeward.model import Clock, OffsetMap, RoundId, TableInfo, fault_point
from lakeward.spi import OFFSETS_KEY, OWN_OFFSETS_KEY, ROUND_KEY, encode_fluss_offsets, find_partitions


@dataclass(frozen=True)
class NewManifests:
    """New manifests. `dropped`: files that left the table."""

    manifests: list[ManifestFile]
    dropped: list[DataFile]


def write_manifests(target: ManifestTarget, ground: IcebergGround, change: IcebergChange) -> NewManifests:
    """Writes manifests. Raises `LakeTampered` if a file to be dropped is not live: the caller read the same head."""
    metadata, head = ground.table.metadata, load_manifests(target.io, ground.head)
    unchanged, parts = _take_apart(target, ground, head, change)
    for manifest in [m for m in unchanged if is_small(m) and _key(m) in parts]:
        parts[_key(manifest)].stay += existing(load_entries(target.io, manifest))
        unchanged.remove(manifest)
    specs, sequence = metadata.specs(), metadata.next_sequence_number()
    written = []
    for (content, spec_id), part in sorted(parts.items(), key=lambda item: item[0]):
        entries = [*part.new, *part.stay, *removed(part.gone, target.snapshot_id)]
        written.append(write_manifest(target, specs[spec_id], content, entries))
        remember(written[-1], part.new, part.stay, sequence)
    dropped = [e.data_file for part in parts.values() for e in part.gone]
    return NewManifests([*written, *merge_manifests(target, unchanged, specs)], dropped)


_Key = tuple[ManifestContent, int]
"""Content and partition spec, which all entries of a manifest share."""


@dataclass
class _Part:
    """Entries of one new manifest: new files, remaining entries of manifests that name a dropped file, and entries of
    small manifests, as each manifest costs readers a request; and the dropped files."""

    new: list[ManifestEntry] = field(default_factory=list)
    stay: list[ManifestEntry] = field(default_factory=list)
    gone: list[ManifestEntry] = field(default_factory=list)


def _take_apart(
    target: ManifestTarget, ground: IcebergGround, head: list[ManifestFile], change: IcebergChange
) -> tuple[list[ManifestFile], dict[_Key, _Part]]:
    """Returns the manifests that name no dropped file, and the entries to write."""
    parts: dict[_Key, _Part] = defaultdict(_Part)
    for content, files in ((ManifestContent.DATA, change.data), (ManifestContent.DELETES, change.delete_files)):
        for n in files:
            parts[content, n.spec_id].new += added([(n.file, n.sequence)], target.snapshot_id)
    unchanged, not_found = list[ManifestFile](), set(change.drop)
    for manifest in head:
        entries = load_entries(target.io, manifest) if not_found else ()
        dropped_here = {file_key(e.data_file) for e in entries} & not_found
        if not dropped_here:
            unchanged.append(manifest)
            continue
        part = parts[_key(manifest)]
        part.gone += [e for e in entries if file_key(e.data_file) in dropped_here]
        part.stay += existing(e for e in entries if file_key(e.data_file) not in dropped_here)
        not_found -= dropped_here
    if not_found:
        raise _not_live(ground, min(not_found, key=str))
    return unchanged, parts


def _key(manifest: ManifestFile) -> _Key:
    return manifest.content, manifest.partition_spec_id


def _not_live(ground: IcebergGround, key: FileKey) -> LakeTampered:
    head = "none" if ground.head is None else str(ground.head.snapshot_id)
    return LakeTampered(
        table=".".join(ground.table.name()), snapshot=head, what=f"file {key[0]}", reason="it is not live"
    )


LIVE_IDS = 2**62
"""Snapshot ids of rounds are at most this number; those of live snapshots, which no catalog names, are above it."""


class SnapshotBuilder:
    """Builds the snapshots of one table's commits. `is_live`: for a snapshot that only an answer of the live catalog
    names: its files need not survive a power failure, it removes no other snapshot, and its time is that of the head,
    as engines that choose a snapshot by the time at which they began would skip a newer one."""

    def __init__(self, clock: Clock, *, is_live: bool = False) -> None:
        self._clock, self._is_live = clock, is_live

    def build(
        self, ground: IcebergGround, round_id: RoundId, keys: Mapping[str, str], change: IcebergChange
    ) -> Snapshot:
        """Writes the manifests; all files of the snapshot are durable then. Raises `FileNotFoundError` if a file of the
        round was deleted."""
        metadata, head = ground.table.metadata, ground.head
        target = ManifestTarget(
            io=ground.table.io,
            folder=metadata_folder(metadata.location, metadata.properties),
            prefix=round_prefix(round_id),
            schema=metadata.schema(),
            snapshot_id=_new_snapshot_id(metadata.snapshots) + (LIVE_IDS if self._is_live else 0),
            version=table_version(metadata),
            dropped=dropped_columns(metadata.schema(), metadata.schemas),
        )
        keys = {k: _spill(target, v) if k in (OFFSETS_KEY, OWN_OFFSETS_KEY) else v for k, v in keys.items()}
        fault_point("lake.before-manifests", round_id=keys[ROUND_KEY])
        new = write_manifests(target, ground, change)
        sequence = metadata.next_sequence_number()
        parent = None if head is None else head.snapshot_id
        next_row_id = find_next_row_id(metadata)
        lineage = (
            {} if next_row_id is None else {"first-row-id": next_row_id, "added-rows": unnumbered_rows(new.manifests)}
        )
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": target.snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": sequence,
                "timestamp-ms": max(0 if self._is_live else self._clock.now_ms(), metadata.last_updated_ms),
                "manifest-list": write_manifest_list(target, parent, sequence, new.manifests, next_row_id),
                "summary": change.summarize(new.dropped, head, keys),
                "schema-id": metadata.current_schema_id,
                **lineage,
            }
        )
        if not self._is_live:  # writers synced the data files
            sync_files([*(n.file.file_path for n in change.delete_files), *target.paths])
        return snapshot


def offset_keys(info: TableInfo, ground: IcebergGround, offsets: OffsetMap) -> dict[str, str | None]:
    """Returns the keys for offsets. With Fluss, `fluss-offsets` is the path that Fluss gave for this commit
    (`CommitProperties.extra`); a commit that moves nothing copies the last one."""
    partitions = find_partitions(info.descriptor)
    if partitions is None:
        return {OFFSETS_KEY: _text(offsets.to_json())}
    newest = ground.reconciled.newest
    path = None if newest is None else summary_of(newest).get(OFFSETS_KEY)
    return {OWN_OFFSETS_KEY: _text(encode_fluss_offsets(info.table_id, offsets, partitions)), OFFSETS_KEY: path}


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"))


def _spill(target: ManifestTarget, text: str) -> str:
    """Writes long offsets to a file."""
    if len(text) <= INLINE_LIMIT or not text.startswith("{"):
        return text
    path = target.new_path("offsets", "json")
    with target.io.new_output(path).create(overwrite=True) as out:
        out.write(text.encode())
    return path


def _new_snapshot_id(taken: Sequence[Snapshot]) -> int:
    used = {s.snapshot_id for s in taken}
    while True:
        number = random.SystemRandom().getrandbits(62) or 1
        if number not in used:
            return number
