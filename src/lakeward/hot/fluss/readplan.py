# SPDX-License-Identifier: Apache-2.0
"""A read of a Fluss table and its lake: the lake's head, and the log from its offsets on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakeward.errors import LakeTampered, LogTooShort, ReadTooFarAhead
from lakeward.model import Bucket, Clock, OffsetMap, OffsetRange, TableInfo, new_lease_id
from lakeward.protocol.readplan import HotRange, ReadPlan, WriteToken
from lakeward.spi import HotStore, LakeReader, LakeSnapshot, LakeStorage

LakeOf = Callable[[TableInfo], tuple[str, Mapping[str, str], LakeStorage]]
"""A table's lake: format, options, and the plugin opened with them."""

_TRIES = 3


def plan_read(
    table: TableInfo, store: HotStore, lake_of: LakeOf, clock: Clock, lease_s: float, at_least: str | None
) -> ReadPlan:
    """Fluss leases neither head nor log: a read that is slower than expiry or TTL fails, and is planned again by its
    caller.
    """
    name, lake_options, lake = lake_of(table)
    snapshot = load_head(lake.open_reader(table))
    offsets = OffsetMap() if snapshot is None or snapshot.offsets is None else snapshot.offsets
    frozen_at_ms, bounds = clock.now_ms(), store.freeze(table)
    tails = []
    for bucket, log_bounds in bounds.items():
        start = offsets.get(bucket, 0 if table.is_pk else log_bounds.start)
        if start < log_bounds.start:
            raise LogTooShort(table=str(table.path), bucket=str(bucket), committed=start, start=log_bounds.start)
        tails.append(HotRange(bucket=bucket, range=OffsetRange(start, max(start, log_bounds.end))))
    _check_reach(table, at_least, {t.bucket: t.range.stop for t in tails})
    return ReadPlan(
        table=table,
        lease_id=new_lease_id(),
        lease_ends_at_ms=frozen_at_ms + int(lease_s * 1000),
        frozen_at_ms=frozen_at_ms,
        snapshot_id=None if snapshot is None or snapshot.offsets is None else snapshot.snapshot_id,
        offsets=offsets,
        tails=tuple(tails),
        lake_format=name,
        lake_options=lake_options,
        has_prev_offset=False,
    )


def load_head(reader: LakeReader) -> LakeSnapshot | None:
    """Again when a commit of the Flink job fell between the table and its offsets file: Fluss
    deletes the one before.
    """
    for _ in range(_TRIES - 1):
        try:
            return reader.load_snapshot()
        except LakeTampered:
            continue
    return reader.load_snapshot()


def _check_reach(table: TableInfo, at_least: str | None, ends: Mapping[Bucket, int]) -> None:
    if at_least is None:
        return
    for bucket, wanted in WriteToken.parse(at_least).offsets.items():
        if ends.get(bucket, 0) < wanted:
            raise ReadTooFarAhead(table=str(table.path), bucket=str(bucket), wanted=wanted, end=ends.get(bucket, 0))
