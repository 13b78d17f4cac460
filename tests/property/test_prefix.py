# SPDX-License-Identifier: Apache-2.0
"""Over random stops, skips and failures: what a round keeps is a contiguous prefix per bucket, and the lake agrees with
it.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import SplitFailed
from lakeward.model import Bucket, LogSplit, OffsetRange, OffsetSet, SnapshotSplit, Split
from lakeward.protocol.heartbeat import TableFailed
from lakeward.tiering.round.prefix import keep_prefix
from lakeward.tiering.work.outcome import WriteOutcome
from tests.unit.tiering.world import World, make_table

ERROR = SplitFailed(table="t", split="s", kind="K", text="broken")


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Split], list[WriteOutcome]]:
    """Splits as a plan gives them, and an outcome for each: whole, short, failed, or none at all."""
    splits: list[Split] = []
    outcomes: list[WriteOutcome] = []
    for number in range(draw(st.integers(1, 3))):
        bucket, at, index = Bucket("", number), draw(st.integers(0, 50)), 0
        if draw(st.booleans()):
            splits.append(SnapshotSplit(bucket=bucket, snapshot_id="s", log_offset=at))
            index = 1
        for size in draw(st.lists(st.integers(1, 9), min_size=1, max_size=6)):
            splits.append(LogSplit(bucket=bucket, range=OffsetRange(at, at + size), index=index))
            at, index = at + size, index + 1
    for split in splits:
        what = draw(
            st.sampled_from(("whole", "whole", "whole", "whole", "short", "short", "failed", "skipped", "unmoved"))
        )
        if what == "skipped":
            continue
        stop = {
            "whole": split.stop,
            "short": draw(st.integers(min(split.start + 1, split.stop), max(split.start + 1, split.stop - 1))),
        }.get(what, split.start)
        outcomes.append(
            WriteOutcome(
                split=split,
                stop=stop,
                rows=stop - split.start,
                result=f"{split}".encode() if stop > split.start else None,
                replaced=OffsetSet([split.start - 1] if stop > split.start > 0 else []),
                error=ERROR if what == "failed" else None,
            )
        )
    return splits, draw(st.permutations(outcomes))


@given(plans())
def test_only_the_contiguous_prefix_counts(plan: tuple[list[Split], list[WriteOutcome]]) -> None:
    splits, outcomes = plan
    kept = keep_prefix(splits, outcomes)
    by_split = {o.split: o for o in outcomes}
    by_bucket = defaultdict(list)
    for outcome in kept.outcomes:
        by_bucket[outcome.split.bucket].append(outcome)
    for bucket, found in by_bucket.items():
        planned = [s for s in splits if s.bucket == bucket]
        assert [o.split for o in found] == planned[: len(found)], "kept splits are the first ones of their bucket"
        assert all(o.is_ok for o in found)
        assert all(o.is_whole for o in found[:-1]), "only the last one may be short"
        assert kept.offsets[bucket] == found[-1].stop
        behind = planned[len(found)] if len(found) < len(planned) else None
        stopped_here = not found[-1].is_whole
        lost = behind is not None and (behind not in by_split or not by_split[behind].is_whole)
        assert behind is None or stopped_here or lost, "nothing that could count was dropped"
    assert set(kept.offsets) == set(by_bucket)
    assert kept.is_whole == all(s in by_split and by_split[s].is_whole for s in splits)
    assert kept.results == [o.result for o in kept.outcomes if o.result is not None]


@settings(max_examples=settings().max_examples // 2)
@given(
    stops=st.dictionaries(st.integers(0, 11), st.sampled_from(("fail", "away")), max_size=4),
    limit=st.integers(0, 12),
    is_pk=st.booleans(),
)
def test_a_round_cut_anywhere_leaves_the_lake_at_a_prefix_and_the_next_one_completes_it(
    stops: dict[int, str], limit: int, is_pk: bool
) -> None:
    world = World(
        make_table("id BIGINT NOT NULL", "name STRING", key=("id",) if is_pk else ()), target_bytes=40, small=0
    )
    batches = [[{"id": (3 * n + i) % 5, "name": f"{n}-{i}"} for i in range(3)] for n in range(12)]
    put = world.store.upsert if is_pk else world.store.append
    if is_pk:
        put(batches[0])
        world.run()
    for batch in batches[1:] if is_pk else batches:
        put(batch)
    seen = [0]

    def trouble(_bucket: Bucket, _offset: int) -> None:
        seen[0] += 1
        if stops.get(seen[0]) == "fail":
            raise ValueError("broken")
        if stops.get(seen[0]) == "away" and seen[0] > limit:
            raise ValueError("away")

    world.store.before_batch = trouble
    end = world.run()
    committed = world.reader.load_base().offsets
    assert committed == world.coordinator.offsets
    held = {row[2] for row in world.lake_rows()}
    assert all(offset < committed.get(Bucket("", 0), 0) for offset in held)
    if not is_pk:
        assert held == set(range(committed.get(Bucket("", 0), 0)))
    world.store.before_batch = lambda _b, _o: None
    world.run()
    assert world.lake_rows() == world.store.rows()
    assert not isinstance(end, TableFailed) or not end.given_back
