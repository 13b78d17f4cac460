# SPDX-License-Identifier: Apache-2.0
"""The offset guard: an offset that the lake has seen is never given to another row, whatever folder the server woke up
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.services import StoreServices
from lakeward.model import Bucket, OffsetRange, fault_point

_REASON = (
    "the lake holds offsets up to {lake} and the log ends at {end}: the data folder is an older copy; "
    "`lakeward table resync {table}` loads what is newer in the lake"
)


def guard_bucket(hot: HotTable, services: StoreServices, bucket: Bucket, lake: int) -> OffsetRange | None:
    """The log goes on at the lake's offset; the gap is returned. A PK table's bucket stops too, and nothing is
    returned: its lake side is mended by a resync, not by a gap. None: all is well.

    The gap is on record before the log skips, so a crash in between skips at the next start."""
    opened = None if _is_gone(hot, bucket) else hot.find_bucket(bucket)
    end = hot.first_offset(bucket) if opened is None else opened.log.end
    if lake <= end:
        return None
    if hot.info.is_pk and not _is_gone(hot, bucket):
        opened = hot.make_bucket(bucket)
        hot.stop_bucket(bucket, _REASON.format(lake=lake, end=end, table=hot.info.path))
    gap = OffsetRange(end, lake)
    services.meta.add_gap(hot.info.table_id, bucket, gap, services.clock.now_ms())
    hot.raise_end(bucket, lake)
    fault_point("hotlog.before-skip", bucket=bucket, offset=lake)
    if opened is not None:
        opened.log.skip_to(lake)
    return None if hot.info.is_pk else gap


def find_behind(hot: HotTable, gaps: Sequence[tuple[Bucket, OffsetRange]]) -> dict[Bucket, OffsetRange]:
    """Buckets of a PK table that are stopped since the lake was found ahead, and those of partitions that are not here
    and never were: they were made after the copy."""
    newest = {bucket: gap for bucket, gap in gaps if hot.info.is_pk}
    return {b: gap for b, gap in newest.items() if b in hot.guarded or (_is_gone(hot, b) and gap.start == 0)}


def load_newer(hot: HotTable, bucket: Bucket, gap: OffsetRange, rows: Iterable[pa.RecordBatch], as_of_ms: int) -> int:
    """A partition that is made for it is stopped first: should it come no further, it is behind still."""
    if _is_gone(hot, bucket):
        hot.create_partition(bucket.partition)
        hot.stop_bucket(bucket, _REASON.format(lake=gap.stop, end=gap.start, table=hot.info.path))
    return hot.make_bucket(bucket).kv(hot.schemas).take_over(rows, as_of_ms)


def _is_gone(hot: HotTable, bucket: Bucket) -> bool:
    """A partition that is not there now; should it be made again, its offsets go on above the lake's."""
    return hot.is_partitioned and bucket.partition not in hot.partitions
