# SPDX-License-Identifier: Apache-2.0
"""The parts of one lake table that its format plugs into the commit protocol."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Generic

from lakeward.lake.core.change import Changes
from lakeward.lake.core.files import RowFiles, StoredFiles
from lakeward.lake.core.log import G, SnapshotLog
from lakeward.lake.core.positions import PositionChanges
from lakeward.model import TableInfo
from lakeward.spi import DeleteEncoding

POSITIONS = frozenset({DeleteEncoding.POSITIONS})


@dataclass(frozen=True)
class LakeTable(Generic[G]):
    info: TableInfo
    log: SnapshotLog[G, Any, Any]
    files: StoredFiles[G]
    changes: Changes[G, Any]
    encodings: Set[DeleteEncoding]


@dataclass(frozen=True)
class PositionTable(LakeTable[G]):
    """A table of a format whose rows are deleted by position."""

    files: RowFiles[G, Any]

    @classmethod
    def of(
        cls,
        info: TableInfo,
        log: SnapshotLog[G, Any, Any],
        files: RowFiles[G, Any],
        encodings: Set[DeleteEncoding] = POSITIONS,
    ) -> PositionTable[G]:
        return cls(info, log, files, PositionChanges(info, log, files), encodings)
