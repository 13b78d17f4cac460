# SPDX-License-Identifier: Apache-2.0
"""What a play's steps stand on: asking a server that may be dead for a moment, waiting until lakes have everything, and
comparing readers with the truth.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from lakeward.client import Client
from lakeward.errors import LakewardError
from lakeward.model import SideName, TablePath
from lakeward.protocol import routes
from lakeward.verify import verify_table
from lakeward.verify.certificate import Certificate
from lakeward_testing.oracle.engines.base import Deed, Effect, Engines, Read
from lakeward_testing.oracle.lab import SECOND
from lakeward_testing.oracle.tables import PlayTables

PANIC = "PanicException"
"""A fault inside a library that is written in Rust: no `Exception`, and not importable by its name."""

SETTLE_S = 240.0
"""As long as a busy machine may take until the lake has everything, after faults."""

READ_S = 60.0
"""A file that a reader opens may have expired meanwhile, or the server was killed: it begins again, as its user would.
"""


class Different(Exception):
    """Rows are not what they should be, or a documented way out led nowhere."""


class Stage:
    """`number` is the play's place in its seed. Its steps follow from both, whatever happened before."""

    def __init__(
        self,
        client: Client,
        engines: Engines,
        second: Engines | None,
        seed: int,
        number: int,
        say: Callable[[str], None],
    ) -> None:
        self._client, self._engines, self._second, self._say = client, engines, second, say
        self._seed, self.number = seed, number
        self.tables = PlayTables(
            client, self._chance("tables"), engines, second, f"s{seed}_{number}", self._chance("sides")
        )
        self.rows_compared, self.comparisons = 0, 0
        self._has_lost_rows = False
        self.readers, self.deeds = Counter[str](), Counter[str]()
        self.notes: list[str] = []

    @property
    def _adds_columns_only(self) -> bool:
        return any(engines.adds_columns_only for engines in self.tables.lakes)

    def _kill(self, chance: Random) -> None:
        """Ends one of the play's processes."""
        raise NotImplementedError

    def _compare_changes(self, path: str) -> None:
        """Of a table with a changelog."""
        raise NotImplementedError

    # ---- other engines ----------------------------------------------------------------------------------------------
    def _rewrite_by_others(self, chance: Random) -> None:
        for path in self.tables.paths:
            self._do(path, Effect.KEEPS, chance)

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
        route = routes.TABLE_STATUS.format(table=path)
        try:
            for side in self.tables.sides:
                status = self._client.server.ask("GET", route, params={"side": str(side)})
                if status["state"] == "quarantined":
                    self._note(f"{path}, {side}, was quarantined: {status['reason']}")
                    self._client.server.ask("POST", routes.RESUME.format(table=path))
        except LakewardError:
            return

    def _compare_union(self) -> None:
        for path in self.tables.paths:
            self._compare("the union read", path, self._ask(self._read_union, path).to_pylist())
            if self.tables.has_second:
                shown = self._ask(self._read_union, path, SECOND)
                self._compare("the union read, second lake", path, shown.to_pylist())

    def _compare_readers(self, path: str) -> None:
        expected = self.tables.expected(path)
        for engines in self.tables.lakes:
            for name, read in engines.read.items():
                if engines.can_read(name, self.tables.target(path)):
                    shown = self._read(name, read, path)
                    if name in engines.late_columns:
                        shown = [{**dict.fromkeys(expected.names), **row} for row in shown]
                    where = "" if engines is self._engines else ", second lake"
                    self._judge(f"{name}{where}", path, expected.difference(shown), len(expected))

    def _compare_lake(self, chance: Random) -> None:
        for path in self.tables.paths:
            self._settle(path)
        for path in self.tables.paths:
            self._compare_readers(path)
            self._compare_changes(path)

    def _read_union(self, path: str, lake: str | None = None) -> Any:
        return self._client.read(path, lake=lake).to_table()

    def _certify(self, path: str, side: SideName) -> Certificate:
        return verify_table(self._client.plugin, TablePath.parse(path), deep=True, side=side)

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

    def _ask(self, call: Callable[..., Any], *arguments: Any, until: tuple[type[Exception], ...] = ()) -> Any:
        """Everything asked here may be repeated; the server may be dead for a moment. `until`: errors that are an
        answer."""
        deadline = time.monotonic() + 90
        while True:
            try:
                return call(*arguments)
            except LakewardError as error:
                if isinstance(error, until) or time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def _note(self, words: str) -> None:
        self.notes.append(words)
        self._say(words)

    def _chance(self, what: object) -> Random:
        return Random(f"{self._seed}/{self.number}/{what}")  # noqa: S311 - rows and faults, not secrets
