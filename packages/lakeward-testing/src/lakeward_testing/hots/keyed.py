# SPDX-License-Identifier: Apache-2.0
"""The hot store contract's PK tables: changelogs that fold to a dict, and KV snapshots that the log continues."""

from __future__ import annotations

import random

from lakeward.model import CHANGE_TYPE, OFFSET, PREV_OFFSET, TableInfo
from lakeward.model import ChangeType as C
from lakeward.spi import HotStore, KvSnapshot
from lakeward_testing.hots.suite import B0, COLUMNS, HotSuite, Row, fold, read, row

State = dict[int, Row]


class KeyedContract(HotSuite):
    def test_changes_say_what_they_replace(self, store: HotStore) -> None:
        table = self.make_table(store, primary_key=("id",))
        self.write(store, table, B0, [row(1), row(2)])
        self.write(store, table, B0, [row(1, "new")])
        self.delete(store, table, B0, [row(2)])
        end = store.freeze(table)[B0].end
        found_rows = read(store, table, B0, 0, end)
        assert [(C(r[CHANGE_TYPE]), r["id"], r["name"]) for r in found_rows] == [
            (C.INSERT, 1, "row 1"),
            (C.INSERT, 2, "row 2"),
            (C.UPDATE_BEFORE, 1, "row 1"),
            (C.UPDATE_AFTER, 1, "new"),
            (C.DELETE, 2, "row 2"),
        ]
        if store.has_prev_offset:
            first, second = found_rows[0][OFFSET], found_rows[1][OFFSET]
            assert [r[PREV_OFFSET] for r in found_rows if r[CHANGE_TYPE] != C.UPDATE_BEFORE] == [
                None,
                None,
                first,
                second,
            ]

    def test_any_cut_of_the_changelog_folds_to_a_dict(self, store: HotStore) -> None:
        table = self.make_table(store, primary_key=("id",))
        states, chance = [(0, dict[int, Row]())], random.Random(3)  # noqa: S311 - a test's script
        for _ in range(12):
            states.append(self._change(store, table, dict(states[-1][1]), chance))
        for at, (cut, _) in enumerate(states):
            below = fold(store, table, B0, 0, cut)
            assert _by_key(below) == states[at][1]
            assert _by_key(fold(store, table, B0, cut, states[-1][0], below)) == states[-1][1]

    def test_projection_reads_the_changes_alone(self, store: HotStore) -> None:
        table = self.make_table(store, primary_key=("id",))
        self.write(store, table, B0, [row(1)])
        self.write(store, table, B0, [row(1, "new")])
        end = store.freeze(table)[B0].end
        names = {n for b in store.read_log(table, B0, 0, end, []) for n in b.schema.names}
        assert not names & set(COLUMNS)
        assert {OFFSET, CHANGE_TYPE} <= names
        assert (PREV_OFFSET in names) is store.has_prev_offset

    def test_a_bucket_that_never_had_a_row_has_no_snapshot(self, store: HotStore) -> None:
        table = self.make_table(store, primary_key=("id",))
        assert store.take_snapshot(table, B0, "holder") is None
        store.release_snapshots(table, "holder")

    def test_a_snapshot_stands_for_the_log_up_to_its_offset(self, store: HotStore) -> None:
        table, chance = self.make_table(store, primary_key=("id",)), random.Random(4)  # noqa: S311 - a test's script
        state: State = {}
        for _ in range(6):
            _, state = self._change(store, table, state, chance)
        snapshot = store.take_snapshot(table, B0, "holder")
        assert snapshot is not None
        before = fold(store, table, B0, 0, snapshot.log_offset)
        for _ in range(6):
            end, state = self._change(store, table, state, chance)
        for _ in range(2):
            rows = self._snapshot_rows(store, table, snapshot)
            assert sorted(rows.values(), key=str) == sorted(before.values(), key=str)
            assert not snapshot.has_offsets or rows == before
        if snapshot.has_offsets or not store.has_prev_offset:
            assert _by_key(fold(store, table, B0, snapshot.log_offset, end, rows)) == state
        store.release_snapshots(table, "holder")
        store.release_snapshots(table, "holder")

    def test_a_snapshot_is_projected_too(self, store: HotStore) -> None:
        table = self.make_table(store, primary_key=("id",))
        self.write(store, table, B0, [row(1), row(2)])
        snapshot = store.take_snapshot(table, B0, "holder")
        assert snapshot is not None
        found_rows = [r for b in store.read_snapshot(table, snapshot, ["name"]) for r in b.to_pylist()]
        assert sorted(r["name"] for r in found_rows) == ["row 1", "row 2"]
        assert all("score" not in r for r in found_rows)
        store.release_snapshots(table, "holder")

    def _change(self, store: HotStore, table: TableInfo, state: State, chance: random.Random) -> tuple[int, State]:
        """One batch of upserts or deletes; the log's end and the state after it."""
        numbers = chance.sample(range(8), 3)
        if chance.random() < 0.3:
            self.delete(store, table, B0, [row(n) for n in numbers if n in state] or [row(numbers[0])])
            state = {n: r for n, r in state.items() if n not in numbers}
        else:
            rows = [row(n, f"change {chance.randrange(1000)}") for n in numbers]
            self.write(store, table, B0, rows)
            state = {**state, **{r["id"]: r for r in rows}}
        return store.freeze(table)[B0].end, state

    def _snapshot_rows(self, store: HotStore, table: TableInfo, snapshot: KvSnapshot) -> dict[int, Row]:
        """Offset (or a number below all offsets, where rows have none) -> row."""
        found_rows = [r for b in store.read_snapshot(table, snapshot) for r in b.to_pylist()]
        return {r.get(OFFSET, -1 - i): {n: r[n] for n in COLUMNS} for i, r in enumerate(found_rows)}


def _by_key(rows: dict[int, Row]) -> State:
    assert len({r["id"] for r in rows.values()}) == len(rows), "each key once"
    return {r["id"]: r for r in rows.values()}
