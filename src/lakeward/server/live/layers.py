# SPDX-License-Identifier: Apache-2.0
"""Layers of a live snapshot: each is what a round would commit on the layer below. A new answer adds a layer for what
is new and reuses the files, deletes and manifests of those below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.datafile.result import WriteHandle
from lakeward.lake.iceberg.live import LiveCommitter, PreparedLive
from lakeward.model import Bucket, OffsetRange, OffsetSet, RoundId
from lakeward.server.live.chunks import Chunk, ChunkWriter, LiveTarget, plan_chunks
from lakeward.spi import HotStore


@dataclass(frozen=True, kw_only=True)
class Layer:
    """`ranges`: the offsets that it adds. `ground`: the table with this layer on it, for the next one."""

    live_id: RoundId
    ranges: Mapping[Bucket, OffsetRange]
    chunks: tuple[Chunk, ...]
    snapshot: Snapshot
    ground: IcebergGround

    @property
    def length(self) -> int:
        """In offsets."""
        return _length(self.ranges)


def _length(ranges: Mapping[Bucket, OffsetRange]) -> int:
    return sum(map(len, ranges.values()))


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The layers that stay, lowest first, and the offsets of the layer to add; no range is empty."""

    stay: tuple[Layer, ...]
    ranges: Mapping[Bucket, OffsetRange]


def plan_layers(layers: Sequence[Layer], tail: Mapping[Bucket, OffsetRange]) -> LayerPlan:
    """Pure. A layer that reaches beyond the tail goes with those above it, and a new layer replaces the top layers that
    are no longer than it is: a tail of n offsets has about log2(n) layers, and each row is written at most that
    often."""
    stay = list(takewhile(lambda layer: _fits(layer, tail), layers))
    ranges = _above(stay, tail)
    while ranges and stay and stay[-1].length <= _length(ranges):
        stay.pop()
        ranges = _above(stay, tail)
    return LayerPlan(stay=tuple(stay), ranges=ranges)


def _fits(layer: Layer, tail: Mapping[Bucket, OffsetRange]) -> bool:
    return all(bucket in tail and span.stop <= tail[bucket].stop for bucket, span in layer.ranges.items())


def _above(layers: Sequence[Layer], tail: Mapping[Bucket, OffsetRange]) -> dict[Bucket, OffsetRange]:
    covered = {bucket: span.stop for layer in layers for bucket, span in layer.ranges.items()}
    ranges = {b: OffsetRange(covered.get(b, span.start), span.stop) for b, span in sorted(tail.items())}
    return {bucket: span for bucket, span in ranges.items() if len(span)}


class LayerStack:
    """The layers of one table's newest live snapshot. Not thread-safe: the table's lock is held."""

    def __init__(self, store: HotStore) -> None:
        self._store = store
        self._lake: tuple[object, ...] = ()
        self.layers: tuple[Layer, ...] = ()

    def chunks(self) -> Iterator[Chunk]:
        return (chunk for layer in self.layers for chunk in layer.chunks)

    def live_ids(self) -> frozenset[RoundId]:
        """Prefixes of the names of all their files."""
        return frozenset({*(layer.live_id for layer in self.layers), *(chunk.live_id for chunk in self.chunks())})

    def plan(self, target: LiveTarget, lake: IcebergGround, tail: Mapping[Bucket, OffsetRange]) -> LayerPlan:
        """No layer stays where the lake's head or a schema is another one: what it deletes may lie elsewhere."""
        return plan_layers(self.layers if self._lake == _state(target, lake) else (), tail)

    def extend(
        self,
        plan: LayerPlan,
        target: LiveTarget,
        lake: IcebergGround,
        live_id: RoundId,
        ends: Mapping[Bucket, int],
        notes: Mapping[str, str],
    ) -> int:
        """Adds the layer of a plan; returns the bytes written. On another head of the lake the chunks of earlier layers
        are used again. Raises what the store and the lake raise; the stack is as before then."""
        ground = plan.stay[-1].ground if plan.stay else lake
        reusable = () if plan.stay or self._lake == _state(target, lake) else tuple(self.chunks())
        chunks = self._write(target, ground, live_id, plan.ranges, reusable)
        committer = LiveCommitter(target.lake.connection, target.lake_table, lake)
        prepared = _prepare(committer, ground, live_id, chunks, ends, notes)
        layer = Layer(
            live_id=live_id, ranges=plan.ranges, chunks=chunks, snapshot=prepared.snapshot, ground=prepared.ground
        )
        self.layers, self._lake = (*plan.stay, layer), _state(target, lake)
        return prepared.bytes_written

    def shrink(self, plan: LayerPlan, target: LiveTarget, lake: IcebergGround) -> None:
        """For a plan that adds nothing."""
        self.layers, self._lake = plan.stay, _state(target, lake)

    def _write(
        self,
        target: LiveTarget,
        ground: IcebergGround,
        live_id: RoundId,
        ranges: Mapping[Bucket, OffsetRange],
        reusable: Sequence[Chunk],
    ) -> tuple[Chunk, ...]:
        writer, handle = ChunkWriter(self._store, target), WriteHandle.of(ground.table).to_bytes()
        chunks = list[Chunk]()
        for bucket, span in ranges.items():
            plan = plan_chunks([c for c in reusable if c.bucket == bucket], span.start, span.stop)
            fresh = [writer.write(bucket, r, live_id, handle, number) for number, r in enumerate(plan.ranges)]
            chunks += sorted([*plan.reused, *fresh], key=lambda chunk: chunk.range.start)
        return tuple(chunks)


def _state(target: LiveTarget, lake: IcebergGround) -> tuple[object, ...]:
    return lake.table.metadata_location, lake.base.head, target.table.schema.schema_id


def _prepare(
    committer: LiveCommitter,
    ground: IcebergGround,
    live_id: RoundId,
    chunks: Sequence[Chunk],
    ends: Mapping[Bucket, int],
    notes: Mapping[str, str],
) -> PreparedLive:
    results = [chunk.result for chunk in chunks if chunk.result is not None]
    replaced: dict[Bucket, OffsetSet] = {}
    for chunk in chunks:
        replaced[chunk.bucket] = replaced.get(chunk.bucket, OffsetSet()).union(chunk.replaced)
    return committer.prepare_live(ground, live_id, results, replaced, ends, notes)
