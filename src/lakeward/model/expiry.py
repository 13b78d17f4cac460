# SPDX-License-Identifier: Apache-2.0
"""Snapshots on their way out of a lake table."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.ids import SnapshotId


@dataclass(frozen=True, kw_only=True)
class ExpiringSnapshot:
    """A snapshot that its table's retention lets go. `trace` is its plugin's own: enough to find the snapshot's files
    once the table has forgotten it, and kept until they are deleted."""

    snapshot_id: SnapshotId
    trace: str = ""
