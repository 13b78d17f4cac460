# SPDX-License-Identifier: Apache-2.0
"""One play: two tables, and steps that a seed draws. Writers, rounds, compactions, other engines, faults, the
documented ways out; every reader is compared with the truth.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from lakeward.client import Client
from lakeward.errors import LakewardError
from lakeward.model import TablePath
from lakeward.protocol import routes
from lakeward.verify import verify_table
from lakeward.verify.certificate import Certificate, FindingKind
from lakeward_testing.chaos.plan import AFTER_THE_CHECK
from lakeward_testing.oracle.engines.base import Deed, Effect, Engines, Read
from lakeward_testing.oracle.lab import JOBS, SERVER, STEPS, OracleLab
from lakeward_testing.oracle.tables import LIMITS, PlayTables

WEIGHTS = {
    "write": 9,
    "write_by_an_old_handle": 2,
    "compare_lake": 5,
    "compact": 2,
    "resync": 1,
    "let_others_rewrite": 4,
    "let_others_insert": 2,
    "let_others_change": 3,
    "let_others_alter": 2,
    "let_others_break_the_schema": 1,
    "let_others_drop_the_table": 1,
    "rebuild_lake": 1,
    "alter": 2,
    "change_the_round_limit": 2,
    "stop_at_a_step": 4,
    "make_a_zombie": 1,
    "kill": 2,
    "pause_a_process": 1,
    "pause_rounds": 1,
    "look_up": 1,
}
"""What may happen next, and how often beside the rest."""

OPENING = ("write", "write", "compare_lake")
LENGTH = 24
SETTLE_S = 240.0
"""As long as a busy machine may take until the lake has everything, after faults."""

PANIC = "PanicException"
"""A fault inside a library that is written in Rust: no `Exception`, and not importable by its name."""

READ_S = 60.0
"""A file that a reader opens may have expired meanwhile, or the server was killed: it begins again, as its user would.
"""


class Different(Exception):
    """Rows are not what they should be, or a documented way out led nowhere."""


class Play:
    """`number` is the play's place in its seed. Its steps follow from both, whatever happened before."""

    def __init__(
        self, lab: OracleLab, client: Client, engines: Engines, seed: int, number: int, say: Callable[[str], None]
    ) -> None:
        self._lab, self._client, self._engines, self._say = lab, client, engines, say
        self._seed, self.number = seed, number
        chance = self._chance("tables")
        self.tables = PlayTables(client, chance, engines, f"s{seed}_{number}")
        drawn = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
        self.steps = [*OPENING, *drawn, "compare_lake", "verify"]
        self.rows_compared, self.comparisons = 0, 0
        self._has_lost_rows = False
        self.readers, self.deeds = Counter[str](), Counter[str]()
        self.notes: list[str] = []

    def run(self, until: float) -> None:
        """Raises `Different`. Ends early at `until` (monotonic), after a last comparison."""
        for place, name in enumerate(self.steps, start=1):
            is_late = time.monotonic() > until and place <= len(self.steps) - 2
            if not is_late:
                self._step(place, name)
        for path in self.tables.paths:
            self._client.drop_table(path, with_lake=True)

    def _step(self, place: int, name: str) -> None:
        self.notes = self.notes[-15:]
        self._note(f"step {place}: {name.replace('_', ' ')}")
        try:
            getattr(self, f"_{name}")(self._chance(place))
            self._compare_union()
        except Exception as error:
            raise Different(f"play {self.number}, step {place} ({name}): {error}") from error

    # ---- steps: our own --------------------------------------------------------------------------------------------
    def _write(self, chance: Random) -> None:
        self.tables.write(chance)

    def _write_by_an_old_handle(self, chance: Random) -> None:
        self.tables.write(chance, by_old_handle=True)

    def _alter(self, chance: Random) -> None:
        path = chance.choice(self.tables.paths)
        change = self.tables.draw_alteration(path, chance, adds_only=self._engines.adds_columns_only)
        if change is not None:
            self._note(f"{path}: {change}")
            self.tables.alter(path, change)

    def _compare_lake(self, chance: Random) -> None:
        for path in self.tables.paths:
            self._settle(path)
        for path in self.tables.paths:
            self._compare_readers(path)

    def _compact(self, chance: Random) -> None:
        self._post(routes.MAINTAIN, chance.choice(self.tables.paths))

    def _resync(self, chance: Random) -> None:
        """Now and then with rounds too short for all of its buckets, or with a kill in the middle."""
        path = chance.choice(self.tables.paths)
        self._set(path, {"table.datalake.max-round-duration": chance.choice(LIMITS)})
        self._post(routes.RESYNC, path, {})
        if chance.random() < 0.3:
            self._kill(chance)
        self._compare_lake(chance)

    def _change_the_round_limit(self, chance: Random) -> None:
        self._set(chance.choice(self.tables.paths), {"table.datalake.max-round-duration": chance.choice(LIMITS)})

    def _rebuild_lake(self, chance: Random) -> None:
        path = self.tables.pk
        self._settle(path)
        self._ask(lambda: self._client.rebuild_lake(path))
        self._compare_lake(chance)

    def _pause_rounds(self, chance: Random) -> None:
        path = chance.choice(self.tables.paths)
        self._post(routes.PAUSE, path)
        self.tables.write(chance)
        self._compare_union()
        self._post(routes.RESUME, path)

    def _look_up(self, chance: Random) -> None:
        state = self.tables.truth.state
        keys = chance.sample(sorted(state), min(len(state), 9)) if state else []
        if keys:
            asked = [{"p": p, "k": k} for p, k in keys]
            shown = self._ask(lambda: self._client.table(self.tables.pk).lookup(asked)).to_pylist()
            expected = self.tables.expected(self.tables.pk).of([state[key] for key in keys])
            self._judge("a lookup", self.tables.pk, expected.difference(shown), len(keys))

    def _verify(self, chance: Random) -> None:
        for path in self.tables.paths:
            certificate = self._ask(self._certify, path)
            missing = sum(f.count for f in certificate.all_findings if f.kind is FindingKind.MISSING)
            others = [f for f in certificate.all_findings if f.kind is not FindingKind.MISSING]
            deleted = self.tables.truth.deleted_events if path == self.tables.log else 0
            if others or missing != deleted or (certificate.holds and deleted):
                raise Different(
                    f"verify --deep of {path}, {deleted} rows deleted by others: {certificate.all_findings}"
                )

    # ---- steps: faults ---------------------------------------------------------------------------------------------
    def _kill(self, chance: Random) -> None:
        self._lab.kill(chance.choice((SERVER, *JOBS)))

    def _pause_a_process(self, chance: Random) -> None:
        self._lab.pause(chance.choice((SERVER, *JOBS)), chance.uniform(0.5, 5))

    def _make_a_zombie(self, chance: Random) -> None:
        """A job that stops between its lease check and its commit for longer than the lease of 3 s."""
        point, seconds = chance.choice(AFTER_THE_CHECK), chance.uniform(4, 7)
        for name in JOBS[: chance.randint(1, 2)]:
            self._lab.arm(name, point, "pause", seconds)
        self.tables.write(chance)

    def _stop_at_a_step(self, chance: Random) -> None:
        name = chance.choice((SERVER, *JOBS, *JOBS))
        point = chance.choice(STEPS[name])
        actions = ("kill", "pause") if name == SERVER else ("kill", "pause", "lose")
        self._lab.arm(name, point, chance.choice(actions), chance.uniform(0.5, 5))
        self.tables.write(chance)

    # ---- steps: other engines --------------------------------------------------------------------------------------
    def _let_others_rewrite(self, chance: Random) -> None:
        for path in self.tables.paths:
            self._do(path, Effect.KEEPS, chance)

    def _let_others_insert(self, chance: Random) -> None:
        """Into a PK table, where a key would be there twice: rounds stop. A resync, or letting rounds remove them."""
        path = self.tables.pk
        self._settle(path)
        if self._do(path, Effect.INSERTS, chance) is None:
            return
        if chance.random() < 0.3:
            self._set(path, {"table.datalake.foreign-rows": "remove"})
            self.tables.write(chance)
            self._settle(path)
            self._set(path, {"table.datalake.foreign-rows": None})
        else:
            self._go_on_meanwhile(path, chance)
            self._take_the_way_out(path, chance)
        self._compare_lake(chance)

    def _let_others_change(self, chance: Random) -> None:
        """Rows go, change or come back: a resync makes a PK table equal to what was written; in a log table it writes
        what a rollback took, and a delete stays a delete."""
        path = chance.choice(self.tables.paths)
        self._settle(path)
        effects = [Effect.DELETES, Effect.ROLLS_BACK, Effect.ALTERS]
        if path == self.tables.log:
            effects = effects[: 1 if self._has_lost_rows else 2]
        done = self._do(path, chance.choice(effects), chance)
        if done is None:
            return
        if path == self.tables.log and done.effect is Effect.DELETES:
            self._has_lost_rows = True  # no resync brings them back; a rollback or a new lake table would
        else:
            self._go_on_meanwhile(path, chance)
            if done.effect is Effect.ROLLS_BACK:
                self._ask(lambda: self._client.reconcile_schema(path))
            self._take_the_way_out(path, chance)
        self._compare_lake(chance)

    def _let_others_alter(self, chance: Random) -> None:
        """ALTER TABLE by the server's catalog is the table's own. One that fails may have changed the lake alone: the
        way out is to repeat the change."""
        path = chance.choice(self.tables.paths)
        change = self.tables.draw_alteration(path, chance, adds_only=False) if self._engines.alters else None
        if change is None:
            return
        name = chance.choice(list(self._engines.alters))
        try:
            self._engines.alters[name](self.tables.target(path), change)
        except self._engines.hurt as error:
            self._note(f"{name}, {path}: {change} failed ({str(error)[:120]}): ours")
        else:
            self._note(f"{name}, {path}: {change}")
            self.deeds[f"{name} alters: {change.kind}"] += 1
            if not self._ask(self.tables.is_altered, path, change):
                raise Different(f"{path} did not follow {name}: {change}")
        self.tables.alter(path, change)
        self.tables.write(chance, by_old_handle=chance.random() < 0.5)

    def _let_others_break_the_schema(self, chance: Random) -> None:
        path = chance.choice(self.tables.paths)
        self._settle(path)
        if (deed := self._do(path, Effect.BREAKS_SCHEMA, chance)) is None:
            return
        self._go_on_meanwhile(path, chance)
        self._ask(lambda: self._client.reconcile_schema(path))
        if "drops" in deed.name:
            self._note("the values of the column are gone: a resync writes them again")
        self._take_the_way_out(path, chance)
        self._compare_lake(chance)

    def _let_others_drop_the_table(self, chance: Random) -> None:
        path = self.tables.pk if self._has_lost_rows else chance.choice(self.tables.paths)
        self._settle(path)
        if self._do(path, Effect.DROPS, chance) is None:
            return
        self._go_on_meanwhile(path, chance)
        is_anew = not self._engines.can_restore
        self._ask(lambda: self._client.restore_lake(path, anew=is_anew))
        self._take_the_way_out(path, chance)
        self._compare_lake(chance)

    def _do(self, path: str, effect: Effect, chance: Random) -> Deed | None:
        """The first deed of that effect, in a drawn order, that the engines can do; None where there is none."""
        target = self.tables.target(path)
        possible = [
            d for d in self._engines.deeds if d.effect is effect and not (d.needs_flat and target.is_partitioned)
        ]
        for deed in chance.sample(possible, len(possible)) if len(self.tables.expected(path)) else ():
            try:
                keys = deed.act(target, chance)
            except BaseException as error:
                if not isinstance(error, self._engines.hurt) and type(error).__name__ != PANIC:
                    raise
                self._note(f"{deed.name}, {path}: did not come to pass ({str(error)[:120]})")
                continue
            self._note(f"{deed.name}, {path}")
            self.deeds[deed.name] += 1
            if deed.effect is Effect.DELETES and not target.is_pk:
                self.tables.truth.forget(keys or ())
            return deed
        return None

    def _go_on_meanwhile(self, path: str, chance: Random) -> None:
        """What may happen before somebody looks: more rows, a compaction, failing rounds, a quarantine, a fault."""
        if chance.random() < 0.6:
            self.tables.write(chance)
        if chance.random() < 0.3:
            self._post(routes.MAINTAIN, path)
        if chance.random() < 0.2:
            self._kill(chance)
        if chance.random() < 0.6:
            time.sleep(chance.uniform(0.2, 4))

    def _take_the_way_out(self, path: str, chance: Random) -> None:
        if chance.random() < 0.3:
            self._set(path, {"table.datalake.max-round-duration": chance.choice(LIMITS)})
        self._post(routes.RESYNC, path, {})
        if chance.random() < 0.2:
            self._kill(chance)

    # ---- what must hold --------------------------------------------------------------------------------------------
    def _settle(self, path: str) -> None:
        """Until the lake has everything. A side that somebody quarantined meanwhile is resumed, as its status says."""
        deadline, last = time.monotonic() + SETTLE_S, ""
        while time.monotonic() < deadline:
            try:
                self._client.tier_now(path, limit_s=20)
                return
            except LakewardError as error:
                last = str(error)
            self._resume_quarantined(path)
            time.sleep(0.2)
        status = self._ask(lambda: self._client.server.ask("GET", routes.TABLE_STATUS.format(table=path)))
        raise Different(f"{path} does not get into the lake within {SETTLE_S:.0f} s: {last}; status {status}")

    def _resume_quarantined(self, path: str) -> None:
        try:
            status = self._client.server.ask("GET", routes.TABLE_STATUS.format(table=path))
            if status["state"] == "quarantined":
                self._note(f"{path} was quarantined: {status['reason']}")
                self._client.server.ask("POST", routes.RESUME.format(table=path))
        except LakewardError:
            return

    def _compare_union(self) -> None:
        for path in self.tables.paths:
            shown = self._ask(self._read_union, path)
            self._compare("the union read", path, shown.to_pylist())

    def _compare_readers(self, path: str) -> None:
        expected = self.tables.expected(path)
        for name, read in self._engines.read.items():
            if self._engines.can_read(name, self.tables.target(path)):
                shown = self._read(name, read, path)
                if name in self._engines.late_columns:
                    shown = [{**dict.fromkeys(expected.names), **row} for row in shown]
                self._judge(name, path, expected.difference(shown), len(expected))

    def _read_union(self, path: str) -> Any:
        return self._client.read(path).to_table()

    def _certify(self, path: str) -> Certificate:
        return verify_table(self._client.plugin, TablePath.parse(path), deep=True)

    def _read(self, name: str, read: Read, path: str) -> list[dict[str, Any]]:
        deadline = time.monotonic() + READ_S
        while True:
            try:
                rows: list[dict[str, Any]] = read(path).to_pylist()
                return rows
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                if time.monotonic() > deadline:
                    raise Different(f"{name} cannot read: {type(error).__name__}: {str(error)[:500]}") from error
                time.sleep(0.5)

    def _compare(self, reader: str, path: str, shown: Iterable[dict[str, Any]]) -> None:
        expected = self.tables.expected(path)
        self._judge(reader, path, expected.difference(shown), len(expected))

    def _judge(self, reader: str, path: str, difference: str, rows: int) -> None:
        if difference:
            raise Different(f"{reader} of {path} differs:\n{difference}")
        self.comparisons += 1
        self.rows_compared += rows
        self.readers[reader] += rows

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _post(self, route: str, path: str, body: dict[str, Any] | None = None) -> None:
        self._ask(lambda: self._client.server.ask("POST", route.format(table=path), body))

    def _set(self, path: str, properties: dict[str, str | None]) -> None:
        self._note(f"{path}: {properties}")
        self._ask(lambda: self._client.alter_table(path, properties=properties))

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Everything asked here may be repeated; the server may be dead for a moment."""
        deadline = time.monotonic() + 90
        while True:
            try:
                return call(*arguments)
            except LakewardError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def _note(self, words: str) -> None:
        self.notes.append(words)
        self._say(words)

    def _chance(self, what: object) -> Random:
        return Random(f"{self._seed}/{self.number}/{what}")  # noqa: S311 - rows and faults, not secrets
