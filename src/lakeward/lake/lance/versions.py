# SPDX-License-Identifier: Apache-2.0
"""A version of a Lance table: what made it, what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import lance

from lakeward.model import SnapshotId
from lakeward.spi import OFFSETS_KEY

EXPIRED_KEY = "lakeward.expired"
"""Versions that went from the table's history and whose manifests may still be there: of a commit of ours, and in the
table's configuration."""

ALTER_KEY = "lakeward.alter"
"""Of a version of ours that changed columns and no row."""

_REWRITE = "Rewrite"
_KEEPS_ROWS = frozenset({"UpdateConfig", "CreateIndex", "Project"})
_KEEPS_OLD_ROWS = frozenset({"Append", _REWRITE})


@dataclass(frozen=True)
class LanceVersion:
    """`properties`: of its transaction. `restored`: the version that this one went back to."""

    version: int
    operation: str
    committed_at_ms: int
    properties: Mapping[str, str] = field(default_factory=dict)
    restored: int | None = None

    @classmethod
    def of(cls, dataset: lance.LanceDataset) -> LanceVersion:
        at_ms = int(dataset.get_version()["timestamp"].timestamp() * 1000)
        try:
            transaction = dataset.read_transaction(dataset.version)
        except TypeError:  # of a compaction that moved an index along the library builds its answer wrongly
            return cls(dataset.version, _REWRITE, at_ms)
        if transaction is None:
            return cls(dataset.version, "unknown", at_ms)
        operation = transaction.operation
        return cls(
            version=dataset.version,
            operation=type(operation).__name__,
            committed_at_ms=at_ms,
            properties=transaction.transaction_properties or {},
            restored=operation.version if isinstance(operation, lance.LanceOperation.Restore) else None,
        )

    @property
    def snapshot_id(self) -> SnapshotId:
        return SnapshotId(str(self.version))

    @property
    def keys(self) -> Mapping[str, str]:
        """Of a commit of ours; empty: it is another's, or one of ours that made no snapshot."""
        return self.properties if OFFSETS_KEY in self.properties else {}

    @property
    def is_snapshot(self) -> bool:
        """A change of columns, properties or indexes alone is none: it has the rows of the one before."""
        return bool(self.keys) or not (self.operation in _KEEPS_ROWS or ALTER_KEY in self.properties)

    @property
    def may_remove_rows(self) -> bool:
        return self.is_snapshot and self.operation not in _KEEPS_OLD_ROWS
