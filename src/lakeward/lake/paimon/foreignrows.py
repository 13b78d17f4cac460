# SPDX-License-Identifier: Apache-2.0
"""Rows that others put into a PK table since our newest snapshot: no changelog has them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from lakeward.errors import ForeignRowsFound
from lakeward.lake.paimon.history import PaimonHistory
from lakeward.lake.paimon.manifests import ADD, Entry, Manifests
from lakeward.model.table import TableInfo
from lakeward.spi.commit import Renewal
from lakeward.spi.foreignrows import removes_foreign_rows


def find_foreign_rows(
    table: TableInfo, history: PaimonHistory, manifests: Manifests, renewal: Renewal | None, *, is_resync: bool
) -> Sequence[Entry]:
    """Files of others that go with the next commit: what they hid shows again, as the rows are merged when they are
    read. Raises `ForeignRowsFound` where the table's option says so, and where a compaction has merged them already.
    """
    foreign = list(takewhile(lambda s: not s.is_ours, history.newest_first())) if table.is_pk else []
    if not foreign or history.newest_ours() is None:
        return []
    compared = {} if renewal is None else renewal.offsets
    added = {
        e.key: e
        for s in foreign
        if s.body["commitKind"] != "COMPACT"
        for e in manifests.changed(s)
        if e.raw.kind == ADD and e.bucket not in compared
    }
    if not added:
        return []
    live = {e.key for e in manifests.live(history.head)}
    hits = [e for key, e in added.items() if key in live]
    is_merged = len(hits) < len(added)
    if is_resync or (removes_foreign_rows(table) and not is_merged):
        return hits
    raise ForeignRowsFound(
        table=str(table.path),
        snapshots=", ".join(s.id for s in foreign),
        rows=sum(int(e.file.row_count) for e in added.values()),
        file=next(iter(added)),
    )
