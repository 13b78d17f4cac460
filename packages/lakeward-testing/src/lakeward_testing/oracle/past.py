# SPDX-License-Identifier: Apache-2.0
"""Steps that look back: cuts, reads `as_of` a moment, and changelogs, each compared with a copy of the truth or played
forward in a dict.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from lakeward.errors import CutExists, CutNotFound, SnapshotGone
from lakeward.model import CutState
from lakeward.protocol import routes
from lakeward_testing.oracle.stage import SETTLE_S, Different, Stage
from lakeward_testing.oracle.truth import Key, Row
from lakeward_testing.oracle.values import spelled

Moment = Mapping[str, list[Row]]
"""The truth's rows of each table at one time."""

APART_S = 0.02
"""Between a moment and the writes before and after it: commit times are milliseconds."""


class PastStage(Stage):
    def _cut(self, chance: Random) -> None:
        """Made between two writes, while rounds are under way, and read when the lakes have it: at once, and after
        more rows, compactions and other engines' rewrites."""
        name = f"{self.tables.name}-{self.comparisons}".replace("_", "-")
        self._ask(self._create_cut, name)
        then = self._copy_truth()
        self.tables.write(chance)
        if chance.random() < 0.3:
            self._kill(chance)
        self._wait_for_cut(name)
        self._compare_cut(name, then)
        if self._engines.keeps_cuts:
            self._rewrite_by_others(chance)
        self.tables.write(chance)
        self._post(routes.MAINTAIN, chance.choice(self.tables.paths))
        self._compare_lake(chance)
        self._compare_cut(name, then)
        self._ask(self._drop_cut, name)

    def _read_as_of(self, chance: Random) -> None:
        """As the lakes were when they had everything; of a PK table with a changelog also as it was before they did."""
        paths = [self.tables.pk] if self.tables.has_changelog and chance.random() < 0.5 else list(self.tables.paths)
        if len(paths) == 1:
            self.tables.write(chance)
        else:
            for path in paths:
                self._settle(path)
        time.sleep(APART_S)
        moment, then = datetime.now(UTC), self._copy_truth()
        time.sleep(APART_S)
        self.tables.write(chance)
        if chance.random() < 0.3:
            self._post(routes.MAINTAIN, chance.choice(self.tables.paths))
        for path in paths:
            self._settle(path)
        for path in paths:
            self._compare_moment(path, moment, then[path])

    def _compare_moment(self, path: str, moment: datetime, rows: list[Row]) -> None:
        try:
            shown = self._ask(lambda: self._client.read(path, as_of=moment).to_table(), until=(SnapshotGone,))
        except SnapshotGone:
            self._note(f"{path}: the snapshot of {moment:%T} has expired")
            return
        expected = self.tables.expected(path).of(rows)
        self._judge("as_of", path, expected.difference(shown.to_pylist()), len(expected))

    # ---- cuts ------------------------------------------------------------------------------------------------------
    def _create_cut(self, name: str) -> None:
        """The answer of an earlier try may have been lost; nothing was written since."""
        try:
            self._client.create_cut(name, self.tables.paths)
        except CutExists:
            return

    def _drop_cut(self, name: str) -> None:
        try:
            self._client.drop_cut(name)
        except CutNotFound:
            return

    def _wait_for_cut(self, name: str) -> None:
        deadline = time.monotonic() + SETTLE_S
        for path in self.tables.paths:
            self._settle(path)
        while (status := self._ask(self._client.cut, name)).state is not CutState.READY:
            if status.state is CutState.LOST or time.monotonic() > deadline:
                raise Different(f"cut {name} is {status.state}: {status.notes}")
            time.sleep(0.2)

    def _compare_cut(self, name: str, then: Moment) -> None:
        for path in self.tables.paths:
            shown = self._ask(lambda path: self._client.read(path, cut=name).to_table(), path)
            expected = self.tables.expected(path).of(then[path])
            self._judge("a cut", path, expected.difference(shown.to_pylist()), len(expected))

    # ---- changelogs ------------------------------------------------------------------------------------------------
    def _compare_changes(self, path: str) -> None:
        """`client.changes`, and the changelog's lake table in every reader: both, played forward, are the truth."""
        if not self.tables.has_changelog:
            return
        if path == self.tables.pk or not self.tables.truth.deleted_events:
            changes = self._ask(lambda: self._client.changes(path, "earliest").to_table())
            self._play_forward("changes", path, changes.to_pylist())
        table = f"{path}__changelog"
        target = replace(self.tables.target(path), path=table, is_pk=False)
        for name, read in self._engines.read.items():
            if self._engines.can_read(name, target):
                self._play_forward(f"{name}, changelog", path, self._read(name, read, table))

    def _play_forward(self, reader: str, path: str, rows: list[Row]) -> None:
        expected = self.tables.expected(path)
        full = [{**dict.fromkeys(expected.names), **row} for row in rows]
        if path == self.tables.pk:
            shown = play_forward(full, expected.names)
        else:
            shown = _inserts(full)
            expected = expected.of([*self.tables.truth.events, *self.tables.truth.deleted_events])
        self._judge(reader, path, expected.difference(shown), len(rows))

    def _copy_truth(self) -> Moment:
        truth = self.tables.truth
        return {self.tables.pk: list(truth.state.values()), self.tables.log: list(truth.events)}


def play_forward(rows: Iterable[Row], names: Iterable[str]) -> list[Row]:
    """The table after these changes. Raises `Different` where an address comes twice, or a change does not fit to the
    row that it changes: a row is inserted where there is none, and an old image is the row before."""
    state, pending, columns = dict[Key, Row](), dict[tuple[str, int], Key](), list(names)
    addresses = set[tuple[Any, ...]]()

    def fits(key: Key, row: Row) -> bool:
        before = state.get(key)
        return before is not None and all(spelled(before[c]) == spelled(row[c]) for c in columns)

    for row in sorted(rows, key=lambda r: (r["p"], r["__bucket"], r["__offset"])):
        key, place, kind = (row["p"], row["k"]), (row["p"], row["__bucket"]), row["__change_type"]
        was_updated = pending.pop(place, None)
        is_right = {
            "insert": key not in state,
            "update_before": fits(key, row),
            "update_after": was_updated == key,
            "delete": fits(key, row),
        }[kind]
        if not is_right or (was_updated is not None and kind != "update_after"):
            raise Different(f"a change that does not fit: {row}, after {state.get(key)}")
        if (address := (*place, row["__offset"])) in addresses:
            raise Different(f"{address} comes twice")
        addresses.add(address)
        if kind == "update_before":
            pending[place] = key
        elif kind == "delete":
            del state[key]
        else:
            state[key] = row
    return list(state.values())


def _inserts(rows: Iterable[Row]) -> list[Row]:
    """Of a log table."""
    listed = list(rows)
    if wrong := [row for row in listed if row["__change_type"] != "insert"]:
        raise Different(f"a log table's change that is no insert: {wrong[0]}")
    return listed
