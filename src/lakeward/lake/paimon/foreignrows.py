# SPDX-License-Identifier: Apache-2.0
"""Rows of a PK table that no changelog has: those that others put in since our newest snapshot, and those of a
partition that a Fluss cluster dropped and made anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from lakeward.errors import ForeignRowsFound
from lakeward.lake.paimon.meta.history import PaimonHistory, PaimonSnapshot
from lakeward.lake.paimon.meta.manifests import ADD, Entry, Manifests
from lakeward.model import GONE_PARTITION, Bucket, LakeBase, TableInfo
from lakeward.spi import Renewal, removes_foreign_rows


def find_foreign_rows(
    table: TableInfo, history: PaimonHistory, manifests: Manifests, renewal: Renewal | None, *, is_resync: bool
) -> Sequence[Entry]:
    """Files of others that go with the next commit: what they hid shows again, as the rows are merged when they are
    read. Raises `ForeignRowsFound` where the table's option says so, and where a compaction has merged them already.
    """
    compared = {} if renewal is None else renewal.offsets
    found = {key: e for key, e in foreign_files(table, history, manifests).items() if e.bucket not in compared}
    if renewal is not None:  # what came after the comparison it does not settle
        found |= foreign_files(table, history, manifests, after=int(renewal.head))
    if not found:
        return []
    live = {e.key for e in manifests.live(history.head)}
    hits = [e for key, e in found.items() if key in live]
    is_merged = len(hits) < len(found)
    if is_resync or (removes_foreign_rows(table) and not is_merged):
        return hits
    raise ForeignRowsFound(
        table=str(table.path),
        snapshots=", ".join(s.id for s in _foreign_snapshots(table, history)),
        rows=sum(int(e.file.row_count) for e in found.values()),
        file=next(iter(found)),
    )


def find_stale(
    table: TableInfo,
    history: PaimonHistory,
    manifests: Manifests,
    base: LakeBase,
    offsets: Mapping[Bucket, int],
) -> Sequence[Entry]:
    """Files of a partition that Fluss made anew, with another number and no offset of its own, under the same values.
    `offsets`: those that the commit moves."""
    anew = {b for b in offsets if b.partition and b not in base.offsets}
    if not table.is_pk or not anew or not any(b.partition.startswith(GONE_PARTITION) for b in base.offsets):
        return []
    return [e for e in manifests.live(history.head) if e.bucket in anew]


def foreign_files(table: TableInfo, history: PaimonHistory, manifests: Manifests, after: int = 0) -> dict[str, Entry]:
    """What others added to a PK table since our newest round, but for compactions; no rewrite of ours takes them in."""
    return {
        e.key: e
        for s in _foreign_snapshots(table, history)
        if s.body["commitKind"] != "COMPACT" and s.number > after
        for e in manifests.changed(s)
        if e.raw.kind == ADD
    }


def _foreign_snapshots(table: TableInfo, history: PaimonHistory) -> list[PaimonSnapshot]:
    """None before the first round."""
    if not table.is_pk or history.newest_ours() is None:
        return []
    since = takewhile(lambda s: s.is_rewrite or not s.is_ours, history.newest_first())
    return [s for s in since if not s.is_ours]
