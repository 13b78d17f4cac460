# SPDX-License-Identifier: Apache-2.0
"""Which layers of a live snapshot stay, and which offsets the new one has."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from lakeward.model import Bucket, OffsetRange, RoundId
from lakeward.server.live.layers import Layer, LayerPlan, plan_layers

A, B = Bucket(partition="", number=0), Bucket(partition="", number=1)


def layered(plan: LayerPlan) -> list[Layer]:
    nothing = cast("Any", None)
    top = Layer(live_id=RoundId("live-x"), ranges=plan.ranges, chunks=(), snapshot=nothing, ground=nothing)
    return [*plan.stay, top] if plan.ranges else list(plan.stay)


def test_layers_cover_the_tail_once_and_each_offset_is_written_a_few_times() -> None:
    chance, layers, ends, written = Random(7), list[Layer](), {A: 0, B: 0}, 0
    for _ in range(1_000):
        ends[chance.choice((A, B))] += chance.choice((0, 1, 5, 100))
        plan = plan_layers(layers, {b: OffsetRange(0, end) for b, end in ends.items()})
        layers = layered(plan)
        written += sum(map(len, plan.ranges.values()))
        for bucket, end in ends.items():
            spans = [layer.ranges[bucket] for layer in layers if bucket in layer.ranges]
            assert [s.start for s in spans] == [0, *(s.stop for s in spans)][: len(spans)]
            assert not spans or spans[-1].stop == end
        assert len(layers) <= 18
    assert written <= 18 * sum(ends.values())


def test_a_layer_beyond_the_tail_goes_and_one_of_a_dropped_partition_too() -> None:
    layers = layered(plan_layers([], {A: OffsetRange(10, 60), B: OffsetRange(0, 9)}))
    layers = layered(plan_layers(layers, {A: OffsetRange(10, 70), B: OffsetRange(0, 9)}))
    assert len(layers) == 2
    shorter = plan_layers(layers, {A: OffsetRange(10, 65), B: OffsetRange(0, 9)})
    assert (shorter.stay, shorter.ranges) == ((layers[0],), {A: OffsetRange(60, 65)})
    dropped = plan_layers(layers, {A: OffsetRange(10, 70)})
    assert (dropped.stay, dropped.ranges) == ((), {A: OffsetRange(10, 70)})


def test_nothing_new_adds_no_layer() -> None:
    tail = {A: OffsetRange(10, 60)}
    layers = layered(plan_layers([], tail))
    again = plan_layers(layers, tail)
    assert (again.stay, again.ranges) == (tuple(layers), {})
