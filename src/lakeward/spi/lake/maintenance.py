# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one lake table: listing, fencing, expiry, deletion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from lakeward.model import ExpiringSnapshot, LakeBase, RoundId, SnapshotId
from lakeward.spi.lakeerrors import TypedCalls
from lakeward.spi.lakefile import Expired, LakeSnapshot, StoredFile

PROBE = "lakeward-probe-"
"""Prefix of the names of probe files; readers ignore them."""


class LakeMaintenance(TypedCalls, ABC):
    """Upkeep of one lake table. Deleting happens here and nowhere else."""

    @abstractmethod
    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        """Lists our files in storage, under a round's prefix or all of them. Offset caches are not listed. Metadata
        files of the format are listed only when no prefix is given, and only those that our own catalog wrote."""

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        """`list_files` of several rounds. A format that lists a whole folder anyway does so once."""
        return {prefix: list(self.list_files(prefix)) for prefix in prefixes}

    @abstractmethod
    def references(self) -> set[str]:
        """Every file that a retained snapshot, tag or branch references, spelled as `list_files` spells paths."""

    @abstractmethod
    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        """Commits an empty snapshot with `fence + 1` and a new token on exactly `base`. Raises as `commit` does."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files, with the caches beside them; returns the bytes freed. A file that is gone is no error."""

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        """Returns the snapshots that the table's `history.expire.*` properties allow to expire; never the tagged one,
        main's head or a branch's or tag's. The caller marks them where read leases are kept, then calls `expire`.
        Default: none, as the format expires snapshots itself or never (`Lack.SNAPSHOT_EXPIRY`)."""
        return ()

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        """Removes these snapshots, then the files that only they referenced; returns the bytes freed. Safe to repeat; a
        crash in between only delays the deletion (`delete_expired` finishes it). Default: removes none."""
        return 0

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        """Deletes files that only these snapshots referenced. Snapshots that the table still has are left alone and not
        returned. Called after a round's commit removed them, or after a crash. Safe to repeat, also after a crash of
        its own. Default: `expirable` names none."""
        return Expired()
