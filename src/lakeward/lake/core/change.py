# SPDX-License-Identifier: Apache-2.0
"""The file changes of one commit, and `Changes`, which computes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from lakeward.model import Bucket, LakeBase, OffsetSet, RoundId
from lakeward.spi import CommitProperties, Renewal, RewriteResult

F = TypeVar("F")


class ChangeKind(StrEnum):
    """Operation of a snapshot, in the words of the plug point."""

    APPEND = "append"
    UPSERT = "overwrite"
    REWRITE = "replace"
    DROP = "delete"
    """A rewrite all of whose groups are dropped."""


@dataclass(frozen=True, kw_only=True)
class CommitChange:
    """Figures of a commit. `deletes`: rows that it deletes; for a rewrite, rows deleted since its plan. `total_rows`:
    live rows afterwards; None: not counted."""

    kind: ChangeKind
    rows: int = 0
    deletes: int = 0
    files: int = 0
    bytes_written: int = 0
    total_rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class RowFileChange(CommitChange, Generic[F]):
    """A change of a format whose rows are deleted by position. `changed`: live files that lose rows, before and after.
    `beside`: other files that the round's writers wrote, such as keys to delete."""

    added: tuple[F, ...] = ()
    changed: tuple[tuple[F, F], ...] = ()
    removed: tuple[F, ...] = ()
    beside: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RoundWork:
    """Arguments of `LakeCommitter.prepare`."""

    results: Sequence[bytes]
    replaced: Mapping[Bucket, OffsetSet]
    renewal: Renewal | None
    base: LakeBase
    properties: CommitProperties
    is_fence: bool = False

    @property
    def is_resync(self) -> bool:
        return self.properties.generation > self.base.generation

    @property
    def renewed(self) -> Mapping[Bucket, OffsetSet]:
        return {} if self.renewal is None else self.renewal.offsets


@dataclass(frozen=True)
class WholeGroup:
    """A group of a rewrite all of whose inputs are live. `emptied`: paths of inputs that left the table since the plan
    because their last row was deleted."""

    result: RewriteResult
    emptied: frozenset[str] = field(default_factory=frozenset)


G_contra = TypeVar("G_contra", contravariant=True)
C_co = TypeVar("C_co", bound=CommitChange, covariant=True)


class Changes(ABC, Generic[G_contra, C_co]):
    """Computes what a commit changes. `PositionChanges` does it for formats that delete by position. Formats that merge
    by key or have their own manifests implement it themselves."""

    @abstractmethod
    def plan_round(self, ground: G_contra, work: RoundWork) -> C_co:
        """Resolves the rows that the round replaces on this ground and writes delete files. Raises
        `ReplacedRowMissing`, `ForeignRowsFound`, `LakeSchemaBroken`, `InvalidRequest`."""

    @abstractmethod
    def find_whole(self, ground: G_contra, results: Sequence[RewriteResult]) -> Sequence[WholeGroup]:
        """Returns the groups that can still replace their inputs. None of them can while foreign rows wait for the next
        round, which looks for foreign rows since our newest commit."""

    @abstractmethod
    def plan_rewrite(self, ground: G_contra, groups: Sequence[WholeGroup], round_id: RoundId) -> C_co:
        """Adds the new files and removes the inputs; rows deleted from inputs since the plan are deleted from the new
        files."""
