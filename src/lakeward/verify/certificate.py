# SPDX-License-Identifier: Apache-2.0
"""Result of `verify`, as data: a certificate per table, and findings that name offsets and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakeward.model import Bucket, OffsetRange, SideName, SnapshotId

SHOWN = 10
"""How many offsets a finding names."""


class CertificateVerdict(StrEnum):
    """The result of a verification. Only a table that was checked completely `holds`."""

    HOLDS = "holds"
    PARTLY_CHECKED = "partly checked, no fault found"
    NOT_CHECKED = "NOT CHECKED"
    """No bucket could be checked. Rows may have been counted."""

    BROKEN = "DOES NOT HOLD"


class FindingKind(StrEnum):
    LEDGER_GAP = "ledger-gap"
    LEDGER_OVERLAP = "ledger-overlap"
    LEDGER_MISMATCH = "ledger-mismatch"
    """Ledger and lake snapshots say different things."""

    MISSING = "missing"
    DUPLICATE = "duplicate"
    STRAY = "stray"
    """A row whose offset was never committed, or that a later change replaced."""

    ALTERED = "altered"
    ROLLED_BACK = "rolled-back"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong. `offsets` holds the first ten of `count`."""

    kind: FindingKind
    words: str
    bucket: Bucket | None = None
    count: int = 1
    offsets: tuple[int, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BucketReport:
    """One bucket checked. `compared` counts rows whose values were compared with the hot store."""

    bucket: Bucket
    range: OffsetRange
    rows: int = 0
    compared: int = 0
    findings: tuple[Finding, ...] = ()
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """`beyond` lists the parts that could not be checked, with the reason; `orphans` are our files that no snapshot
    references."""

    table: str
    table_id: str
    snapshot_id: SnapshotId | None
    deep: bool
    buckets: tuple[BucketReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    beyond: tuple[str, ...] = ()
    orphan_files: int = 0
    orphan_bytes: int = 0
    checked_at_ms: int = 0
    notes: tuple[str, ...] = field(default=())
    side: SideName | None = None
    """Set for a table that names its lakes."""

    only_counted: int = 0
    """Rows of a table whose buckets could not be checked: their number is right, and nothing more is known."""

    by_value: int = 0
    """Rows of such a table that were compared with the hot store, wherever they lie in the lake."""

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        return (*self.findings, *(f for b in self.buckets for f in b.findings))

    @property
    def verdict(self) -> CertificateVerdict:
        if self.all_findings:
            return CertificateVerdict.BROKEN
        if not self.beyond:
            return CertificateVerdict.HOLDS
        is_checked = self.buckets or self.by_value
        return CertificateVerdict.PARTLY_CHECKED if is_checked else CertificateVerdict.NOT_CHECKED

    @property
    def holds(self) -> bool:
        return self.verdict is CertificateVerdict.HOLDS

    @property
    def is_failure(self) -> bool:
        """True if `lakeward verify` ends with exit code 1: a fault was found, or the table has rows and none was
        checked."""
        return self.verdict is CertificateVerdict.BROKEN or (
            self.verdict is CertificateVerdict.NOT_CHECKED and self.only_counted > 0
        )

    @property
    def rows(self) -> int:
        return self.only_counted + self.by_value + sum(b.rows for b in self.buckets)

    @property
    def compared(self) -> int:
        """Rows whose values were compared with the hot store."""
        return self.by_value + sum(b.compared for b in self.buckets)

    def count(self, *kinds: FindingKind) -> int:
        return sum(f.count for f in self.all_findings if f.kind in kinds)

    @property
    def totals(self) -> dict[str, Any]:
        kinds = FindingKind
        return {
            "rows": self.rows,
            "gaps": self.count(kinds.MISSING, kinds.LEDGER_GAP),
            "duplicates": self.count(kinds.DUPLICATE, kinds.LEDGER_OVERLAP, kinds.STRAY),
            "altered": self.count(kinds.ALTERED),
            "other": self.count(kinds.LEDGER_MISMATCH, kinds.ROLLED_BACK, kinds.UNREADABLE),
        }
