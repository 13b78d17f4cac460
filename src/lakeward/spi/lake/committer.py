# SPDX-License-Identifier: Apache-2.0
"""The commits of one lake table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from lakeward.model import Bucket, LakeBase, OffsetSet, RoundId
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.lakeerrors import TypedCalls
from lakeward.spi.lakefile import LakeSnapshot


class LakeCommitter(TypedCalls, ABC):
    """One table's commits. `begin` before writing; `prepare` and `commit` after, again on each new head."""

    @property
    def coordinator_id(self) -> str | None:
        """The coordinator in whose process the catalog is, where it takes leased commits; may ask the catalog once."""
        return None

    @abstractmethod
    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        """Returns what writers need (schema, location, properties), as versioned bytes. It comes from the table that
        `base` was read from; without one, and after a schema change, the catalog is asked."""

    @abstractmethod
    def prefix(self, round_id: RoundId) -> str:
        """The name prefix of every file this round may write, for its intent. Known without a call after `begin`."""

    @abstractmethod
    def prepare(
        self,
        results: Sequence[bytes],
        replaced: Mapping[Bucket, OffsetSet],
        base: LakeBase,
        properties: CommitProperties,
        renewal: Renewal | None = None,
    ) -> Committable:
        """Resolve and build the commit on `base` (from `LakeReader.load_base` just before): replaced offsets become
        positions in files of the head or of `results`; delete files, manifests are written. Blocks on storage; does not
        load again what `base` was read from.

        `renewal`, where the round compared rows with the lake: its offsets go from files of the head and stay in those
        of `results`.

        Called again with a fresh base after a foreign commit; files of an earlier call are left to orphan removal.
        Raises `ReplacedRowMissing`, `LakeSchemaBroken`, `LakeUnavailable`; may raise `CommitConflict` if the head is
        no longer `base`'s, which `commit` finds at the latest."""

    @abstractmethod
    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        """Checks the precondition on `committable.base` and commits on exactly that head and tag, as one snapshot; what
        `committable.expire` names leaves the table in the same step, its files stay for `delete_expired`. With
        `committable.leased` the catalog checks the lease first and raises `LeaseLost`; a catalog that turned out not to
        know leased commits leaves `LakeSnapshot.leased` empty.

        Safe to repeat unchanged: at most one of the calls takes effect. Raises `CommitConflict` (`lost` when the
        precondition is broken, `Precondition.breach`; else somebody else's commit came between), `CommitUnknown` when
        no answer came, `LakeTableGone`."""

    @abstractmethod
    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        """Finds this round's commit among the snapshots that the lake retains; None if it did not take effect. Always
        reads the lake."""
