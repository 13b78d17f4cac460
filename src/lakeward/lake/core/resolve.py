# SPDX-License-Identifier: Apache-2.0
"""From offsets to positions: which rows of which files a round's replaced and renewed offsets are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from lakeward.lake.core.change import F
from lakeward.lake.core.files import SnapshotFiles
from lakeward.lake.core.foreign import Positions
from lakeward.model import Bucket, OffsetRange, OffsetSet

Wanted = Mapping[Bucket, OffsetSet]
_NONE = OffsetSet()


def resolve(
    head: SnapshotFiles[F], new: SnapshotFiles[F], replaced: Wanted, renewed: Wanted, positions: Positions
) -> tuple[Positions, dict[Bucket, OffsetSet]]:
    """Replaced offsets in files of the head or of this round, renewed ones in files of the head alone, added to
    `positions`; and replaced offsets that no file has."""
    parts, missing = {key: [p] for key, p in positions.items()}, dict(replaced)
    both = {b: replaced.get(b, _NONE).union(renewed.get(b, _NONE)) for b in {*replaced, *renewed}}
    for side, wanted in ((head, both), (new, replaced)):
        for file in side.files if any(wanted.values()) else ():
            bucket = side.bucket(file)
            near = wanted.values() if bucket is None else [wanted.get(bucket, _NONE)]
            if not any(_may_hold(side.bounds(file), offsets) for offsets in near):
                continue
            offsets = side.offsets(file)
            for bucket, places in side.places(file):
                if bucket is None or bucket not in wanted:
                    continue
                among = offsets if places is None else offsets[places]
                at = wanted[bucket].mask(among).nonzero()[0]
                if len(at):
                    parts.setdefault(side.key(file), []).append(OffsetSet(at if places is None else places[at]))
                    if bucket in missing:
                        missing[bucket] = missing[bucket].minus(OffsetSet(among[at]))
    resolved = {key: reduce(OffsetSet.union, sets) for key, sets in parts.items()}
    return resolved, {b: offsets for b, offsets in sorted(missing.items()) if offsets}


def _may_hold(bounds: OffsetRange | None, wanted: OffsetSet) -> bool:
    if not wanted or bounds is None:
        return bool(wanted)
    return len(wanted.below(bounds.stop)) > len(wanted.below(bounds.start))
