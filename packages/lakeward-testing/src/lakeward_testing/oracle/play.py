# SPDX-License-Identifier: Apache-2.0
"""One play: two tables, and steps that a seed draws. Writers, rounds, compactions, other engines, faults, the
documented ways out; every reader is compared with the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from lakeward.client import Client
from lakeward.model import DEFAULT_SIDE
from lakeward.protocol import routes
from lakeward.verify.certificate import FindingKind
from lakeward_testing.chaos.plan import AFTER_THE_CHECK
from lakeward_testing.oracle.engines.base import Effect, Engines
from lakeward_testing.oracle.lab import JOBS, SERVER, STEPS, OracleLab
from lakeward_testing.oracle.past import PastStage
from lakeward_testing.oracle.stage import Different
from lakeward_testing.oracle.tables import LIMITS

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
    "cut": 2,
    "read_as_of": 2,
}
"""What may happen next, and how often beside the rest."""

OPENING = ("write", "write", "compare_lake")
LENGTH = 24


class Play(PastStage):
    def __init__(
        self,
        lab: OracleLab,
        client: Client,
        engines: Engines,
        second: Engines | None,
        seed: int,
        number: int,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(client, engines, second, seed, number, say)
        self._lab = lab
        drawn = self._chance("steps").choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
        self.steps = [*OPENING, *drawn, "compare_lake", "verify"]

    def run(self, until: float) -> None:
        """Raises `Different`. Ends early at `until` (monotonic), after the opening and a last comparison."""
        for place, name in enumerate(self.steps, start=1):
            is_late = time.monotonic() > until and len(OPENING) < place <= len(self.steps) - 2
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
        change = self.tables.draw_alteration(path, chance, adds_only=self._adds_columns_only)
        if change is not None:
            self._note(f"{path}: {change}")
            self.tables.alter(path, change)

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
            for side in self.tables.sides:
                certificate = self._ask(self._certify, path, side)
                missing = sum(f.count for f in certificate.all_findings if f.kind is FindingKind.MISSING)
                others = [f for f in certificate.all_findings if f.kind is not FindingKind.MISSING]
                is_hurt = path == self.tables.log and side == DEFAULT_SIDE
                deleted = len(self.tables.truth.deleted_events) if is_hurt else 0
                if others or missing != deleted or (certificate.holds and deleted):
                    words = f"verify --deep of {path}, {side}, {deleted} rows deleted by others"
                    raise Different(f"{words}: {certificate.all_findings}")

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
        self._rewrite_by_others(chance)

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
        if path == self.tables.log and self.tables.has_second:
            effects = [Effect.ROLLS_BACK]  # rows that one lake lost would be in the other
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
        change = self.tables.draw_alteration(path, chance, adds_only=self._adds_columns_only)
        if change is None or not self._engines.alters:
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
