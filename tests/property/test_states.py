# SPDX-License-Identifier: Apache-2.0
"""Walks over the legal moves: no path lets an epoch or a committed offset go back, and no round runs without a new
epoch.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import IllegalTransition
from lakeward.model import (
    ENTERED_FROM,
    Bucket,
    OffsetMap,
    TableState,
    check_transition,
    is_legal,
    render_diagram,
    render_page,
)

S = TableState
STOPPED = {S.QUARANTINED, S.PAUSED, S.DISABLED, S.DROPPED}


def moves(source: TableState | None) -> list[TableState]:
    return [target for target in TableState if is_legal(source, target)]


def reachable(start: TableState | None, without: set[TableState]) -> set[TableState]:
    """States that can be reached from `start` without entering any of `without`."""
    seen: set[TableState] = set()
    rest = [start]
    while rest:
        for target in moves(rest.pop()):
            if target not in seen | without:
                seen.add(target)
                rest.append(target)
    return seen


def test_a_round_always_comes_after_being_queued() -> None:
    for source in (None, *TableState):
        if source is not S.PENDING:
            assert S.TIERING not in reachable(source, without={S.PENDING})


def test_only_a_running_round_ends_as_tiered_or_failed() -> None:
    assert ENTERED_FROM[S.TIERED] == ENTERED_FROM[S.FAILED] == {S.TIERING}
    assert ENTERED_FROM[S.TIERING] == {S.PENDING}


def test_a_dropped_table_stays_dropped_and_every_other_one_can_be_dropped() -> None:
    assert moves(S.DROPPED) == []
    assert all(is_legal(state, S.DROPPED) for state in TableState if state is not S.DROPPED)


def test_a_stopped_table_runs_again_only_through_scheduled() -> None:
    for state in STOPPED - {S.DROPPED}:
        assert S.PENDING not in reachable(state, without={S.SCHEDULED})
        assert S.TIERING in reachable(state, without=set())


def test_every_state_can_be_entered_and_nothing_but_a_drop_is_a_dead_end() -> None:
    assert reachable(None, without=set()) == set(TableState)
    assert [state for state in TableState if not moves(state)] == [S.DROPPED]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (None, S.PENDING),
        (None, S.TIERING),
        (S.NEW, S.TIERING),
        (S.TIERED, S.TIERING),
        (S.QUARANTINED, S.PENDING),
        (S.DROPPED, S.SCHEDULED),
        (S.PAUSED, S.PENDING),
    ],
)
def test_other_moves_are_refused_by_name(source: TableState | None, target: TableState) -> None:
    with pytest.raises(IllegalTransition) as raised:
        check_transition("db.t", source, target)
    assert str(target) in str(raised.value)
    assert str(source) in str(raised.value)


@given(st.data())
def test_on_every_walk_epochs_and_offsets_only_grow(data: st.DataObject) -> None:
    """Plays what the coordinator does on entry: Pending raises the epoch; a tiered round commits from where the lake
    stands.
    """
    state: TableState | None = None
    epoch, run_epochs, committed = 0, [0], OffsetMap()
    for _ in range(40):
        choices = moves(state)
        if not choices:
            break
        target = data.draw(st.sampled_from(choices))
        check_transition("db.t", state, target)
        before = committed
        if target is S.PENDING:
            epoch += 1
        elif target is S.TIERING:
            assert epoch > run_epochs[-1], "two rounds under one epoch"
            run_epochs.append(epoch)
        elif target is S.TIERED:
            bucket = Bucket("", data.draw(st.integers(0, 2)))
            committed = committed.overlaid({bucket: committed.get(bucket, 0) + data.draw(st.integers(0, 5))})
        elif target in STOPPED:
            seen = {Bucket("", n): data.draw(st.integers(0, 9)) for n in range(2)}
            committed = committed.raised(seen)
        assert not before.regressions(committed)
        state = target
    assert run_epochs == sorted(set(run_epochs))


def test_the_diagram_shows_every_move_once() -> None:
    lines = [line.strip() for line in render_diagram().splitlines()[1:]]
    assert len(lines) == len(set(lines)) == sum(len(sources) for sources in ENTERED_FROM.values())
    assert "pending --> tiering" in lines
    assert "[*] --> new" in lines
    assert "```mermaid" in render_page()
