# SPDX-License-Identifier: Apache-2.0
"""The two things with which an executor writes one split of a round: the task, and the writer of a lake format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from lakeward.model import RoundId, Split, TableInfo


@dataclass(frozen=True, kw_only=True)
class WriteTask:
    """Everything an executor needs to write one split. `handle` is what `LakeCommitter.begin` returned."""

    round_id: RoundId
    table: TableInfo
    split: Split
    attempt: int
    handle: bytes


class LakeWriter(ABC):
    """Writes one split. One thread, one use. Memory is bounded by one row group."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Rows to be live in the lake: the user's columns plus `__offset` and `__timestamp`, ascending by offset.

        `__bucket` and partition values come from the split. Blocks on storage. A crash leaves a file that no snapshot
        references. Raises `LakeUnavailable` and what the format refuses."""

    @abstractmethod
    def complete(self) -> bytes | None:
        """Closes the files and returns the WriteResult as small versioned bytes; None when no row came.

        A crash before the result reaches the driver leaves files for orphan removal."""

    def abort(self) -> None:
        """Closes handles without a result. Deletes nothing: only orphan removal deletes. Safe to repeat. Default: the
        writer has no handles."""
        return
