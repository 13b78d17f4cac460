# SPDX-License-Identifier: Apache-2.0
"""Orphan removal: deletes our files that no snapshot references and that no possible commit could reference (design.md
6.7, 6.8).

The order makes it safe: files are listed first; then the lake is brought to a state in which their writers' commits are
refused; then references are read; the difference is deleted. Files that a writer adds later are handled by a later
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lakeward.errors import CommitConflict, CommitUnknown, ForeignRowsFound, LakeHistoryGone, LakeRolledBack
from lakeward.model import TIER, Clock, Intent, IntentState, LakeBase, RoundId, TableInfo, fault_point, new_round_id
from lakeward.spi import IntentStore, LakeStorage, StoredFile

_NOT_OURS = (LakeRolledBack, ForeignRowsFound, LakeHistoryGone)
"""Errors that stop a pass: a fence is a commit, which is not made on rolled back tables or foreign rows."""

Hold = Callable[[], AbstractContextManager[bool]]
"""Holds the table's lease while the context lasts; yields False if a job has it."""

Adopt = Callable[[LakeBase], None]
"""Reports the lake's state to the coordinator before a fence moves the tag."""


@dataclass(frozen=True, kw_only=True)
class OrphanOptions:
    """`grace_ms`: younger files are left alone, as a cancelled task goes on writing for seconds. `max_age_ms`: older
    rounds never commit, and older intents need not be retained (`tiering.round.max-age`)."""

    grace_ms: int = 600_000
    max_age_ms: int = 2 * 24 * 3_600_000


@dataclass(frozen=True, kw_only=True)
class OrphanReport:
    """Result of one pass. `waiting`: orphans for a later pass. `stopped`: why this pass deleted fewer than it
    detected."""

    files: int = 0
    bytes: int = 0
    waiting: int = 0
    forgotten: int = 0
    fenced: bool = False
    stopped: str | None = None


class OrphanRemoval:
    """Orphan removal of one table. Safe to stop anywhere and to run again, also twice at once."""

    def __init__(
        self, lake: LakeStorage, table: TableInfo, *, clock: Clock, options: OrphanOptions, hold: Hold, adopt: Adopt
    ) -> None:
        self._table, self._clock, self._options = table, clock, options
        self._hold, self._adopt = hold, adopt
        self._lake, self._reader = lake, lake.open_reader(table)
        self._upkeep = lake.open_maintenance(table)

    def by_intents(self, intents: IntentStore) -> OrphanReport:
        """Checks the files under the prefixes of recorded intents. Raises errors of the lake; a rolled back lake stops
        the pass."""
        open_intents = intents.open_intents(self._table.table_id)
        listed = self._list(open_intents)
        fault_point("orphans.listed", table=str(self._table.path))
        used = self._upkeep.references()
        suspects = [i for i in open_intents if any(self._is_ripe(f) and f.path not in used for f in listed[i.round_id])]
        try:
            base, fenced = self._fence_unless(lambda b: all(is_stopped(i, b) for i in suspects))
        except _NOT_OURS as error:
            return OrphanReport(waiting=sum(map(len, listed.values())), stopped=str(error))
        ready = [i for i in suspects if is_stopped(i, base)]
        files, freed = self._delete(f for i in ready for f in listed[i.round_id])
        forgotten = self._forget(intents, open_intents, base)
        stopped = None if len(ready) == len(suspects) else "a round holds the table, or the fence did not land"
        waiting = sum(len(listed[i.round_id]) for i in suspects if i not in ready)
        return OrphanReport(
            files=files, bytes=freed, waiting=waiting, forgotten=forgotten, fenced=fenced, stopped=stopped
        )

    def sweep(self) -> OrphanReport:
        """Checks all our files, if intents were lost. Their writers are unknown, so it always fences before it
        deletes."""
        try:
            before = self._reader.load_base()
            listed = list(self._upkeep.list_files())
            fault_point("orphans.listed", table=str(self._table.path))
            used = self._upkeep.references()
            suspects = [f for f in listed if self._is_ripe(f) and f.path not in used]
            if not suspects:
                return OrphanReport()
            base, fenced = self._fence_unless(lambda b: b.fence > before.fence)
        except _NOT_OURS as error:
            return OrphanReport(stopped=str(error))
        if base.fence <= before.fence:
            return OrphanReport(waiting=len(suspects), stopped="a round holds the table, or the fence did not land")
        files, freed = self._delete(suspects)
        return OrphanReport(files=files, bytes=freed, fenced=fenced)

    def _fence_unless(self, is_enough: Callable[[LakeBase], bool]) -> tuple[LakeBase, bool]:
        """Returns the base, and whether this call fenced. Reconciles first; fences only while it holds the table's
        lease."""
        base = self._reader.load_base()
        if is_enough(base):
            return base, False
        with self._hold() as is_idle:
            if not is_idle:
                return base, False
            base = self._reader.load_base()
            if is_enough(base):
                return base, False
            self._adopt(base)
            fault_point("orphans.before-fence", table=str(self._table.path))
            fenced = self._commit_fence(base)
            fault_point("orphans.fenced", table=str(self._table.path))
            return self._reader.load_base(), fenced

    def _commit_fence(self, base: LakeBase) -> bool:
        """Fences. A conflict or a lost answer does not matter: the lake is read again."""
        try:
            self._upkeep.fence(base, new_round_id(), int(base.epoch))
        except (CommitConflict, CommitUnknown):
            return False
        return True

    def _delete(self, listed: Iterable[StoredFile]) -> tuple[int, int]:
        """Deletes files; returns their number and bytes. References are read here, after the fence."""
        used = self._upkeep.references()
        victims = sorted(f.path for f in listed if self._is_ripe(f) and f.path not in used)
        fault_point("orphans.before-delete", table=str(self._table.path), files=victims)
        freed = self._upkeep.delete(victims) if victims else 0
        fault_point("orphans.deleted", table=str(self._table.path), bytes=freed)
        return len(victims), freed

    def _forget(self, intents: IntentStore, still_open: Sequence[Intent], base: LakeBase) -> int:
        """Forgets intents whose writer cannot commit, has ended, and left no file."""
        used = self._upkeep.references()
        over = [i for i in still_open if is_stopped(i, base) and self._is_over(i)]
        listed = self._list(over)
        gone = [i for i in over if all(f.path in used for f in listed[i.round_id])]
        for intent in gone:
            fault_point("orphans.before-forget", round_id=intent.round_id)
            intents.forget(intent.round_id)
        return len(gone)

    def _list(self, intents: Sequence[Intent]) -> dict[RoundId, Sequence[StoredFile]]:
        """Uses the prefix that this lake gives to each round, not the one in the intent, which a job wrote."""
        named = [i.round_id for i in intents if i.round_id]
        committer = self._lake.open_committer(self._table) if named else None
        prefixes = {r: committer.prefix(r) for r in named if committer is not None}
        by_prefix = self._upkeep.list_by_prefix(list(prefixes.values()))
        return {i.round_id: by_prefix[prefixes[i.round_id]] if i.round_id in prefixes else () for i in intents}

    def _is_ripe(self, file: StoredFile) -> bool:
        return file.modified_at_ms <= self._clock.now_ms() - self._options.grace_ms

    def _is_over(self, intent: Intent) -> bool:
        """Whether the writer has ended. A committed round has; the writer of any other may sleep as long as a round may
        live."""
        wait = self._options.grace_ms if intent.state is IntentState.COMMITTED else self._options.max_age_ms
        return intent.recorded_at_ms <= self._clock.now_ms() - wait


def is_stopped(intent: Intent, base: LakeBase) -> bool:
    """Whether this intent's writer can no longer commit. Work that moves to a newer head, such as a compaction, is
    stopped by a higher fence alone."""
    if intent.kind == TIER:
        return base.token != intent.token
    if intent.state is IntentState.COMMITTED:
        return True  # it landed; its other requests were built on other heads
    return base.fence > intent.fence
