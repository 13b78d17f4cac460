# SPDX-License-Identifier: Apache-2.0
"""Reconcile: what the lake holds against what the coordinator recorded, before anything is planned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakeward.errors import LakeBehind, TableNotFound
from lakeward.model import DEFAULT_SIDE, LakeBase, LedgerKind, RoundId, RoundOwner, SideName, TableInfo
from lakeward.protocol.heartbeat import CommitReport, Committed
from lakeward.spi import LakeReader


class Agreement(StrEnum):
    AGREED = "agreed"
    LAKE_AHEAD = "lake-ahead"
    """A crash fell between the two commits, or the coordinator's database is older: take over what the lake says."""


def compare(table: TableInfo, base: LakeBase, committed: Committed) -> Agreement:
    """Raises `LakeBehind` when the coordinator recorded more than the lake holds: never "never tiered".

    A lake of a newer generation is a resync that landed: its offsets stand, even where they are lower."""
    if committed.table_id != table.table_id:
        raise TableNotFound(table=f"{table.path} with id {table.table_id}")
    if base.generation > committed.generation:
        return Agreement.LAKE_AHEAD
    for bucket, offset in committed.offsets.items():
        lake_offset = base.offsets.get(bucket, 0)
        if lake_offset < offset:
            raise LakeBehind(table=str(table.path), bucket=str(bucket), lake_offset=lake_offset, committed=offset)
    moved = base.offsets != committed.offsets or (base.token is not None and base.token != committed.token)
    return Agreement.LAKE_AHEAD if moved else Agreement.AGREED


def adoption(table: TableInfo, base: LakeBase, owner: RoundOwner, side: SideName = DEFAULT_SIDE) -> CommitReport:
    """The report that tells the coordinator what the lake holds."""
    return CommitReport(
        table_id=table.table_id,
        round_id=RoundId(base.token or ""),
        snapshot_id=base.head,
        epoch=base.epoch,
        job=owner.job,
        instance=owner.instance,
        offsets=base.offsets,
        kind=LedgerKind.ADOPTED,
        generation=base.generation,
        fence=base.fence,
        lake_rows=base.lake_rows,
        side=side,
        resyncing=base.is_resyncing,
    )


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """Where the lake stands, whether the coordinator must be told so first, and whether a resync is still to do."""

    base: LakeBase
    agreement: Agreement
    resync: bool = False
    generation: int = 0
    """... and the generation that it begins."""


def reconcile(table: TableInfo, reader: LakeReader, committed: Committed) -> Reconciliation:
    """The ground to plan on. A lake that is ahead is adopted by the caller, never redone. `committed` is from before
    the lake is read here: it may only fall behind meanwhile.

    Raises `LakeBehind`, and what `LakeReader.load_base` raises (`LakeRolledBack`, `LakeForeign`, `LakeTampered`)."""
    base = reader.load_base()
    return Reconciliation(base=base, agreement=compare(table, base, committed))


def reconcile_resync(reader: LakeReader, generation: int) -> Reconciliation:
    """The lake is taken as it is, whatever was recorded.

    A lake that has the new generation already is a resync that landed before its report did: adopted, and gone on with
    where buckets are left to compare."""
    base = reader.load_base_as_is()
    is_ahead = base.generation >= generation
    return Reconciliation(
        base=base,
        agreement=Agreement.LAKE_AHEAD if is_ahead else Agreement.AGREED,
        resync=base.is_resyncing or not is_ahead,
        generation=max(generation, base.generation + 1),
    )
