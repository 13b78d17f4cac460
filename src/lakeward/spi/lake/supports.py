# SPDX-License-Identifier: Apache-2.0
"""Optional powers of a lake format. A class that has the methods has the power: callers ask with `isinstance`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from lakeward.model import Bucket, LakeBase, Offsets, RoundId, SnapshotId, TableDescriptor, TableInfo, TablePath
from lakeward.spi.coordinator import IntentStore
from lakeward.spi.lakefile import AdoptedRows, LakeFile
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult, RewriteTask


@runtime_checkable
class SupportsRewrite(Protocol):
    """A storage whose data files Lakeward can rewrite. Without it no job compacts the format's tables. Its committers
    are `SupportsRewriteCommit`."""

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        """Called in an executor: reads the files of one group with the deletes of the planned snapshot applied, and
        writes their rows in ascending offset order with today's columns. Does not go to the catalog.

        `is_due` is asked between row groups: once it says yes the work ends, and the answer is None. A crash, or an
        end, leaves files that no snapshot references. Raises `LakeUnavailable`, `LakeTampered`."""


@runtime_checkable
class SupportsRewriteCommit(Protocol):
    """A committer that can commit rewritten files."""

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        """Build the commit of a rewrite on `base` (from `LakeReader.load_base` just before): new files in, inputs out
        with the deletes that touch no live file any more, as one snapshot that changes no row. Deletes that came since
        the plan go along by position. A group of which an input is no longer live under the same path and sequence
        number is left out alone. Token, offsets, generation, fence and row count are copied; `extra` is what the
        snapshot says besides. Groups that are dropped come without others: their rows are gone after it, as a delete
        that every engine sees.

        Called by a compaction's driver, again with a fresh base after a conflict that is not `lost`. Blocks on storage.
        Raises `CommitConflict` if the head is not `base`'s, `LakeUnavailable`."""


@runtime_checkable
class SupportsReaders(Protocol):
    """A catalog that knows which engines read its tables: those that `table.datalake.readers` names."""

    def properties_for_readers(self, path: TablePath, descriptor: TableDescriptor) -> Mapping[str, str]:
        """Called when a table is created: properties that it needs so that all of its readers read it. Pure. Raises
        `InvalidTable` where one of them cannot."""


@runtime_checkable
class SupportsRestore(Protocol):
    """A catalog that can find a lake table again which was dropped from it."""

    def restore(self, table: TableInfo) -> str | None:
        """Registers a dropped lake table again, at the newest state that is left of it. Returns a description of the
        source; None if nothing is left. Raises `LakeUnavailable`."""


@runtime_checkable
class SupportsProbe(Protocol):
    """Upkeep that can try whether the table's storage can be written to."""

    def probe(self) -> None:
        """Writes a small file where the table's data lies and deletes it. Raises what the lake raises. Safe to
        repeat."""


@runtime_checkable
class SupportsSnapshotNames(Protocol):
    """Upkeep that can name snapshots, which keeps them from any engine's expiry: those of cuts are named. Without it
    only our own expiry spares them."""

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        """Gives a snapshot a name that keeps it from every engine's expiry, and by which other engines find it; our own
        readers find it for as long as it has one. Safe to repeat; a name that is in use moves. Raises
        `LakeUnavailable`, `SnapshotGone`."""

    def untag(self, name: str) -> None:
        """Called and raises as `tag`. Safe to repeat, and where there never was such a name."""


@runtime_checkable
class SupportsKeyDeletes(Protocol):
    """A writer of a format with `DeleteEncoding.EQUALITY`."""

    def delete_keys(self, batch: pa.RecordBatch) -> None:
        """Keys whose older rows go (equality encoding), in the order of the changelog relative to `write`."""


@runtime_checkable
class SupportsChanges(Protocol):
    """A writer of a format with `DeleteEncoding.NATIVE`."""

    def write_changes(self, batch: pa.RecordBatch) -> None:
        """Changes of a PK table as they are in the changelog (native encoding): the user's columns, `__offset`,
        `__timestamp` and `__change_type`, in the changelog's order: of one key the last change counts. In a -D only key
        columns need be set. Blocks and raises as `write`."""


@runtime_checkable
class SupportsVectors(Protocol):
    """A reader of a format whose files have deletion vectors, or positional deletes."""

    def deleted_rows(self, file: LakeFile) -> Offsets:
        """Positions of the rows that a file's deletion vectors (and positional deletes) take out of it, ascending, for
        engines that scan the file by themselves. Raises `LakeUnavailable`, `LakeTampered`."""


@runtime_checkable
class SupportsIntents(Protocol):
    """A storage that keeps intents for a hot store whose coordinator keeps none (Apache Fluss)."""

    def open_intents(self, table: TableInfo) -> IntentStore:
        """Kept beside the table. May block on the catalog."""


@runtime_checkable
class SupportsForeignTables(Protocol):
    """A catalog that can describe foreign lake tables, so that they can be adopted. Its readers are
    `SupportsFileOrder`, its upkeep `SupportsTakeOver`."""

    def describe_foreign(
        self, path: TablePath, bucket_count: int = 1, primary_key: Sequence[str] = ()
    ) -> TableDescriptor:
        """Describes a foreign lake table as one of our tables, in its present layout. Changes nothing and reads no
        rows. Raises `InvalidTable`, `UnsupportedType` if it cannot be adopted, `LakeUnavailable`, `LakeTableGone`."""

    def warn_foreign(self, path: TablePath) -> tuple[str, ...]:
        """Warnings for a person who adopts a foreign lake table. Changes nothing."""


@runtime_checkable
class SupportsFileOrder(Protocol):
    """A reader that can start again in the middle of a scan."""

    def scan_files(
        self, snapshot_id: SnapshotId, *, columns: Sequence[str], first: int = 0
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """As `scan`, file by file, in an order that is always the same; each batch with the number of its file, from
        this one on."""


@runtime_checkable
class SupportsTakeOver(Protocol):
    """Upkeep that can take over a foreign lake table."""

    def take_over(self, offsets: Mapping[Bucket, int], at: SnapshotId | None = None) -> AdoptedRows:
        """Takes over a foreign lake table: by a snapshot that changes no file, with our table id and these
        offsets. What was there is noted, and its snapshot named for ever. Safe to repeat, for the same table id and
        offsets. `at`: of a PK table, whose rows were read at this snapshot; it must be main's head.

        Raises `CommitConflict` where others keep committing, `LakeForeign` where another table was first."""
