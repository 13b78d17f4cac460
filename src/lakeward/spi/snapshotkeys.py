# SPDX-License-Identifier: Apache-2.0
"""The keys of our snapshots, encoded and decoded for every format: from and to a mapping of strings, which each format
keeps where it keeps a snapshot's properties.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakeward.errors import InvalidRequest, LakeTampered
from lakeward.model import Epoch, LakeBase, OffsetMap, RoundId, SnapshotId, TableId
from lakeward.spi.commit import CommitProperties
from lakeward.spi.lakefile import LakeSnapshot

COMMIT_USER = "__fluss_lake_tiering"
ROUND_KEY = "lakeward.round"
EPOCH_KEY = "lakeward.epoch"
JOB_KEY = "lakeward.job"
TABLE_ID_KEY = "lakeward.table-id"
FENCE_KEY = "lakeward.fence"
GENERATION_KEY = "lakeward.generation"
RESYNC_KEY = "lakeward.resync"
"""On a snapshot whose generation has buckets that no resync round compared yet; absent otherwise."""

UNDER_WAY = "under-way"
ROWS_KEY = "lakeward.total-rows"
REWRITE_KEY = "lakeward.rewrite"
OFFSETS_KEY = "fluss-offsets"
OWN_OFFSETS_KEY = "lakeward.offsets"
"""Offsets of a snapshot in the Fluss setting, where `fluss-offsets` names a file that Fluss deletes after the next
commit.
"""

COMMIT_USER_KEY = "commit-user"
TAG = "lakeward"


def encode_keys(
    table_id: TableId,
    base: LakeBase,
    properties: CommitProperties,
    *,
    fence_step: int = 0,
    rows: int | None = None,
    rewrite_id: RoundId | None = None,
) -> dict[str, str]:
    """Summary properties of a new snapshot on `base`, without its offsets. A rewrite copies the round of the base."""
    keys = {
        COMMIT_USER_KEY: COMMIT_USER,
        ROUND_KEY: properties.round_id,
        EPOCH_KEY: str(properties.epoch),
        JOB_KEY: properties.job,
        TABLE_ID_KEY: table_id,
        FENCE_KEY: str(base.fence + fence_step),
        GENERATION_KEY: str(properties.generation),
    }
    if properties.leaves_resync(base):
        keys[RESYNC_KEY] = UNDER_WAY
    if rows is not None:
        keys[ROWS_KEY] = str(rows)
    if rewrite_id is not None:
        keys[REWRITE_KEY] = rewrite_id
    return keys


def encode_all_keys(
    table_id: TableId,
    base: LakeBase,
    properties: CommitProperties,
    *,
    fence_step: int = 0,
    rows: int | None = None,
    rewrite_id: RoundId | None = None,
) -> dict[str, str]:
    """With the offsets of all buckets, for formats whose snapshots hold them themselves."""
    return {
        **encode_keys(table_id, base, properties, fence_step=fence_step, rows=rows, rewrite_id=rewrite_id),
        OFFSETS_KEY: json.dumps(base.offsets.overlaid(properties.offsets).to_json()),
        **properties.extra,
    }


def decode_snapshot(
    summary: Mapping[str, str],
    *,
    snapshot_id: SnapshotId,
    parent_id: SnapshotId | None,
    committed_at_ms: int,
    operation: str,
    offsets: OffsetMap | None,
    sequence: int = 0,
) -> LakeSnapshot:
    """A snapshot as the plug point shows it, ours or not. Numbers that cannot be read count as 0 here."""
    rows = summary.get(ROWS_KEY, "")
    return LakeSnapshot(
        snapshot_id=snapshot_id,
        parent_id=parent_id,
        committed_at_ms=committed_at_ms,
        operation=operation,
        round_id=RoundId(summary[ROUND_KEY]) if ROUND_KEY in summary else None,
        offsets=offsets,
        epoch=_int(summary.get(EPOCH_KEY)),
        job=summary.get(JOB_KEY, ""),
        fence=_int(summary.get(FENCE_KEY)),
        generation=_int(summary.get(GENERATION_KEY)),
        table_id=TableId(summary[TABLE_ID_KEY]) if TABLE_ID_KEY in summary else None,
        lake_rows=int(rows) if rows.isdigit() else None,
        sequence=sequence,
        rewrite_id=RoundId(summary[REWRITE_KEY]) if REWRITE_KEY in summary else None,
        summary=dict(summary),
    )


def decode_base(
    summary: Mapping[str, str],
    *,
    table: str,
    snapshot_id: SnapshotId,
    head: SnapshotId | None,
    offsets: OffsetMap,
    token: str | None,
) -> LakeBase:
    """Reads the base of a commit from the summary of our newest snapshot; `token` comes from `decode_token`. Raises
    `LakeTampered` for a number that cannot be parsed."""

    def number(key: str) -> int:
        text = summary.get(key, "0")
        if not text.lstrip("-").isdigit():
            raise LakeTampered(table=table, snapshot=snapshot_id, what=key, reason=f"{text!r} is no number")
        return int(text)

    return LakeBase(
        offsets=OffsetMap(offsets),
        token=token,
        fence=number(FENCE_KEY),
        head=head,
        epoch=Epoch(number(EPOCH_KEY)),
        generation=number(GENERATION_KEY),
        is_resyncing=RESYNC_KEY in summary,
        lake_rows=number(ROWS_KEY) if ROWS_KEY in summary else None,
    )


def decode_offsets(summary: Mapping[str, str], table: str, snapshot_id: SnapshotId) -> OffsetMap:
    """Reads the offsets of all buckets as `encode_all_keys` stored them. Raises `LakeTampered`."""
    try:
        return OffsetMap.from_json(json.loads(summary[OFFSETS_KEY]))
    except (KeyError, ValueError, InvalidRequest) as error:
        raise LakeTampered(table=table, snapshot=snapshot_id, what=OFFSETS_KEY, reason=str(error)) from error


def decode_token(summary: Mapping[str, str], snapshot_id: SnapshotId) -> str:
    """The round id; the snapshot's own id where a Flink job wrote it."""
    return summary.get(ROUND_KEY, snapshot_id)


def is_of(summary: Mapping[str, str], round_id: RoundId) -> bool:
    """Does the snapshot tell that this round, or this rewrite, landed? A rewrite copies the id of the round before."""
    return round_id in (summary.get(ROUND_KEY), summary.get(REWRITE_KEY))


def _int(text: str | None) -> int:
    return int(text) if text is not None and text.lstrip("-").isdigit() else 0
