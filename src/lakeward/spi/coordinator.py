# SPDX-License-Identifier: Apache-2.0
"""The plug point for coordinators, as jobs and readers see them: heartbeat, commit, read plan, read leases, intents.

Lakeward's own is reached over HTTP; with Apache Fluss these calls become its heartbeat RPC and its lake snapshot calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from lakeward.errors import InvalidRequest
from lakeward.model import (
    DEFAULT_SIDE,
    Bucket,
    Intent,
    LeaseId,
    LedgerEntry,
    RoundId,
    SideName,
    SnapshotId,
    TableId,
    TableInfo,
    TablePath,
)
from lakeward.protocol.heartbeat import (
    CommitAnswer,
    CommitReport,
    Committed,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseCheck,
    LeaseVerdict,
)
from lakeward.protocol.readplan import ReadPlan
from lakeward.protocol.tables import CutStatus


class CoordinatorClient(ABC):
    """All calls may block up to the client's time-out and raise `ServerUnavailable`; all are safe to repeat. `side` is
    one of the table's; None is the first, the only one where a table has one.
    """

    @property
    def coordinator_id(self) -> str | None:
        """Identifies the coordinator to a catalog that it shares a process with; None where none does."""
        return None

    @abstractmethod
    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Called by a job on its tick, and at once to finish or fail a round. Raises `Superseded`,
        `IncompatibleVersion`.
        """

    @abstractmethod
    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        """Does this round still hold its table? Called right before each lake commit; no
        answer means: do not commit.
        """

    @abstractmethod
    def committed(self, path: TablePath, side: SideName | None = None) -> Committed:
        """Returns the coordinator's record of the lake: offsets, newest round, generation."""

    @abstractmethod
    def commit(self, report: CommitReport) -> CommitAnswer:
        """Records a lake commit or adopts the lake's state. Idempotent per round; never lowers an offset.

        Raises `LedgerGap`. An old epoch is no error: what the lake holds is a fact, no matter who reports it."""

    def prepare_commit(self, table: TableInfo, round_id: RoundId, offsets: Mapping[Bucket, int]) -> Mapping[str, str]:
        """Called before a lake commit is built: what its snapshot must say besides our own keys. `offsets` are the
        round's.

        Called again when the round is prepared on a new head. Nothing is recorded by it: a crash after it leaves
        nothing to mend."""
        return {}

    def prepare_rewrite(self, table: TableInfo, round_id: RoundId, offsets: Mapping[Bucket, int]) -> Mapping[str, str]:
        """As `prepare_commit`, of a compaction, which moves no offset: `offsets` are all that the lake table has."""
        return {}

    @abstractmethod
    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName = DEFAULT_SIDE) -> bool:
        """Is this round in the ledger? Asked after a conflict or an unknown outcome, as expiry may have taken its
        snapshot.
        """

    def ledger(self, path: TablePath, side: SideName | None = None) -> Sequence[LedgerEntry]:
        """Every entry of the side's newest life, oldest first, all generations. Asked by `verify`."""
        raise NotImplementedError(f"{type(self).__name__} keeps no ledger of its own")

    @abstractmethod
    def record_intent(self, intent: Intent) -> None:
        """Before the first file of a round is written. A crash after it leaves an intent without files: harmless."""

    @abstractmethod
    def abandon_intent(self, round_id: RoundId, *, unused: bool = False) -> None:
        """The round gave up; its files are orphan removal's. `unused`: it had nothing to write, so there are no files
        and the intent may be forgotten. Unknown ids are no error."""

    @abstractmethod
    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        """A consistent read under a lease: lease first, then the snapshot and log starts are checked to stand.

        `at_least` is a write token: the plan covers those offsets, or `ReadTooFarAhead`."""

    def load_cut(self, name: str) -> CutStatus:
        """A cut, for a read at it. Raises `CutNotFound`."""
        raise InvalidRequest(what=f"cut {name[:80]}", reason="cuts are of a Lakeward server's own tables")

    @abstractmethod
    def renew_read(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> None:
        """Holds a read lease for longer. `snapshot_id` moves it to an older snapshot, for a read of history; check
        afterwards that it stands. Raises `SnapshotGone` when the lease ended already, or the snapshot is to go."""

    @abstractmethod
    def release_read(self, lease_id: LeaseId) -> None:
        """Ends a read lease. Safe to repeat."""


class IntentStore(ABC):
    """Intents make the listing of orphans cheap; losing them loses nothing (a sweep of the folder finds the same
    files).
    """

    @abstractmethod
    def record(self, intent: Intent) -> None:
        """Durable before it returns. Recording the same round twice keeps the first."""

    @abstractmethod
    def abandon(self, round_id: RoundId) -> None:
        """Marks it; unknown ids are no error."""

    @abstractmethod
    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        """Intents that are not committed and not cleaned, oldest first."""

    @abstractmethod
    def forget(self, round_id: RoundId) -> None:
        """After its orphans are gone and its writer can no longer commit. Safe to repeat."""
