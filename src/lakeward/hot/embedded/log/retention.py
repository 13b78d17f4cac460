# SPDX-License-Identifier: Apache-2.0
"""Which segments may go: from the remote tier by time, and from the local disk once they are in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lakeward.hot.embedded.log.segment import Segment


def plan_expiry(segments: Sequence[Segment], now_ms: int, ttl_ms: int, needed_from: int | None) -> list[Segment]:
    """The oldest segments that are past their time and no longer needed; the log stays contiguous. `needed_from` is the
    lowest offset that the lake, a lease or KV still needs; None: none is needed."""
    expired_segments: list[Segment] = []
    for segment in segments:
        if ttl_ms <= 0 or now_ms - segment.last_at_ms <= ttl_ms:
            break
        if needed_from is not None and segment.stop > needed_from:
            break
        expired_segments.append(segment)
    return expired_segments


def plan_upload(closed: Sequence[Segment], uploaded: set[int], synced_end: int, most: int) -> list[Segment]:
    """Closed segments that the remote tier lacks, oldest first; only what is on disk here."""
    return [s for s in closed if s.base not in uploaded and s.stop <= synced_end][:most]


def plan_drop_local(
    closed: Sequence[Segment], uploaded: set[int], keep: int, now_ms: int, local_ttl_ms: int
) -> list[Segment]:
    """Local copies to remove: uploaded ones beyond the newest `keep` (the active segment is one of them), and older
    than their time. Only from the old end on."""
    dropped_segments: list[Segment] = []
    for number, segment in enumerate(closed):
        surplus = len(closed) + 1 - number > keep
        old = local_ttl_ms > 0 and now_ms - segment.last_at_ms > local_ttl_ms
        if segment.base not in uploaded or not (surplus or old):
            break
        dropped_segments.append(segment)
    return dropped_segments
