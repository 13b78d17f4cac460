# SPDX-License-Identifier: Apache-2.0
"""Tables that Fluss hands out by its heartbeat: what a job takes, renews, gives back and leaves to others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from lakeward.config import options
from lakeward.errors import InvalidInput, LakewardError
from lakeward.hot.fluss.handout.beats import HeldBack, beat_entry, beat_message, read_lease, read_verdicts
from lakeward.hot.fluss.handout.compactions import Compactions, Held
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.handout.heldnote import HeldNote
from lakeward.hot.fluss.handout.slack import Slack
from lakeward.hot.fluss.handout.standing import StandingWatch
from lakeward.hot.fluss.knowntables import KnownTables
from lakeward.hot.fluss.readplan import LakeOf
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.tables import DEFAULT_FRESHNESS_MS, freshness_ms
from lakeward.hot.fluss.wire.messages import HEARTBEAT, Message
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import Clock, TableId, TableInfo, TablePath
from lakeward.protocol.heartbeat import HandedOut, HeartbeatAnswer, HeartbeatRequest, LeaseCheck, LeaseVerdict
from lakeward.spi import SupportsRewrite

log = logging.getLogger("lakeward.fluss")

BEAT_MS = 500
"""Fluss's timers tick once a second and its lease is 120 s: this is about being handed tables soon."""

_LEFT_TO_OTHERS_S = 1.0
"""A job cannot tell Fluss which tables it takes: after some that it cannot it asks for none for so long. Another job
that asks in that time gets them, and this one's tables wait no longer than that."""


class HandOuts:
    """Safe to use from several threads."""

    def __init__(
        self,
        servers: FlussServers,
        store: FlussStore,
        lake_of: LakeOf,
        tables: KnownTables,
        clock: Clock,
        note: HeldNote | None,
    ) -> None:
        self._servers, self._store, self._lake_of, self._tables = servers, store, lake_of, tables
        self._clock, self._note = clock, note
        self._held, self._slack, self._compactions = HeldBack(), Slack(), Compactions(self._is_compacted)
        self._lock = threading.Lock()
        self._refused: dict[TableId, str] = {}
        self._ask_at = 0.0

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """One table per call is all that Fluss hands out: the call is repeated while there is room and
        something comes.
        """
        now = self._clock.monotonic()
        if request.room and self._note is not None and (held_back := self._note.find_left(request.job)):
            self._beat({"failed": [beat_entry(*key) for key in held_back]})
            self._note.given_back()
            log.info("a job of this name ended without giving back %d tables: they are given back now", len(held_back))
        translated = self._compactions.translate(request, now)
        renewals = self._compactions.renewed()
        with self._lock:
            self._held.note(translated, now)
            self._slack.note(translated, now)
            due = self._held.due(now, all_of_them=request.leaving)
            renewed = [*self._held.renewed(now), *renewals] if not request.leaving else []
        translated = replace(translated, room=0 if now < self._ask_at else max(0, translated.room - len(renewals)))
        answer = self._beat(beat_message(translated, renewed, [beat_entry(*key) for key in due]))
        with self._lock:
            self._held.told(due)
            self._held.refused(answer)
        compacted = self._compactions.told(request, translated, answer)
        self._warn(answer)
        self._store.renew_snapshots()
        verdicts, handed = read_verdicts(translated, answer), self._collect(answer, translated.room)
        with self._lock:
            tables = (
                *map(self._compaction, compacted),
                *self._slack.order(handed, self._clock.monotonic()),
            )
            waiting = [*self._held.keys, *self._compactions.keys]
        if self._note is not None and self._servers.has_growing_epochs:
            in_work = [] if request.leaving else [(t.table_id, t.epoch) for t in request.tiering]
            self._note.keep(request.job, [*in_work, *((t.table_id, t.epoch) for t in handed), *waiting])
        return HeartbeatAnswer(
            coordinator_epoch=answer.get("coordinator_epoch", 0), verdicts=verdicts, tables=tables, next_beat_ms=BEAT_MS
        )

    def _collect(self, answer: Message, room: int) -> list[HandedOut]:
        """Asks on until there is no room or nothing comes. A server that is away from here on takes nothing back: what
        was handed out so far is the job's."""
        handed: list[HandedOut] = []
        refused: list[HandedOut] = []
        while (table := self._handed(answer)) is not None:
            (refused if self._is_refused(table) else handed).append(table)
            if len(handed) >= room:
                break
            try:
                answer = self._beat({"request_table": 1})
            except LakewardError as error:
                log.info("%d tables were handed out, then: %s", len(handed) + len(refused), error)
                break
        if refused:
            self._give_back(refused)
        return handed

    def _is_refused(self, handed: HandedOut) -> bool:
        """Tables that this job cannot tier, said once for each reason: a property may be taken away, a partition come.
        Trouble that may pass is the round's to tell."""
        try:
            table = self._store.load_table(handed.path)
            check_supported(table)
            self._lake_of(table)[2].check_shared(table)
        except InvalidInput as error:
            if self._refused.get(handed.table_id) != str(error):
                log.warning("%s is left to other jobs: %s", handed.path, error)
            self._refused[handed.table_id] = str(error)
            return True
        except Exception:  # noqa: BLE001 - the round will say what is wrong with the table
            return False
        self._refused.pop(handed.table_id, None)
        return False

    def _give_back(self, refused: Sequence[HandedOut]) -> None:
        """Gives the tables back in one call: until this job asks again they wait for a job that can tier them."""
        self._ask_at = self._clock.monotonic() + _LEFT_TO_OTHERS_S
        try:
            self._beat({"failed": [beat_entry(t.table_id, t.epoch) for t in refused]})
        except LakewardError as error:
            log.info("%d tables could not be given back, Fluss takes them after its lease: %s", len(refused), error)

    def watch(self, table: TableInfo) -> StandingWatch:
        """For who wants the table in the lake before its time."""
        return StandingWatch(self._beat, table, self._clock, self._note)

    def take(self, path: TablePath) -> HandedOut | None:
        """This one table, if it is due. Others that come before it are given back."""
        others: list[HandedOut] = []
        try:
            while (handed := self._handed(self._beat({"request_table": 1}))) is not None:
                if handed.path == path:
                    return handed
                others.append(handed)
        finally:
            if others:
                self._give_back(others)
        return None

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        """Fluss has no question of its own for that: a heartbeat that renews the table is refused when it is
        another's.
        """
        return read_lease(self._beat({"tiering": [beat_entry(check.table_id, check.epoch)]}))

    def _beat(self, message: Message) -> Message:
        return self._servers.call_coordinator(HEARTBEAT, message)

    def _handed(self, answer: Message) -> HandedOut | None:
        table = answer.get("table")
        if table is None:
            return None
        path, epoch = TablePath(table["path"]["database"], table["path"]["table"]), table.get("tiering_epoch", 0)
        table_id = TableId(str(table.get("table_id", 0)))
        self._tables.note(table_id, path)
        limit_ms = self._freshness_ms(path)
        epoch = join_epoch(answer.get("coordinator_epoch", 0), epoch)
        # Fluss lets a round take as long as the freshness before it must make room for others.
        return HandedOut(table_id=table_id, path=path, epoch=epoch, freshness_ms=limit_ms, limit_ms=limit_ms)

    def _freshness_ms(self, path: TablePath) -> int:
        try:
            return freshness_ms(self._store.load_table(path))
        except (LakewardError, ValueError, KeyError, TypeError):  # the round will say what is wrong with the table
            return DEFAULT_FRESHNESS_MS

    def _compaction(self, key: Held) -> HandedOut:
        path = self._tables.path_of(key[0])
        return self._compactions.hand_out(key, path, self._freshness_ms(path))

    def _is_compacted(self, table_id: TableId) -> bool:
        """Unless the table says no: what Fluss takes as its default is not among its properties."""
        try:
            table = self._tables.load_by_id(table_id)
            is_on = options.TABLE_DATALAKE_AUTO_COMPACTION.kind.parse(
                table.descriptor.properties.get(options.TABLE_DATALAKE_AUTO_COMPACTION.key, "true")
            )
            return bool(is_on) and isinstance(self._lake_of(table)[2], SupportsRewrite)
        except (LakewardError, ValueError):  # a round will say what is wrong with the table
            return False

    def _warn(self, answer: Message) -> None:
        """A finish or failure that Fluss refused: the table is another job's by now. Nothing is left to do."""
        for entry in (*answer.get("finished", []), *answer.get("failed", [])):
            if "error" in entry:
                log.info(
                    "table %s: Fluss did not take the end of its round: error %s",
                    entry.get("table_id"),
                    entry["error"].get("code"),
                )
