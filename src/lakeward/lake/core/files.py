# SPDX-License-Identifier: Apache-2.0
"""What a format does with data files whose rows are deleted by position: read them, mark rows deleted, list, delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.core.failures import LakeErrors
from lakeward.lake.core.rewrite import RankTable
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import Bucket, OffsetRange, Offsets, OffsetSet, RoundId, SnapshotId
from lakeward.spi import LakeFile, RewriteResult, StoredFile

F = TypeVar("F")
G = TypeVar("G")


class AddressedFiles(ABC, Generic[F]):
    """Data files of one snapshot, or of a round that is about to be committed, and where their rows come from."""

    files: Sequence[F]

    @abstractmethod
    def describe(self, file: F) -> LakeFile:
        """As the plug point shows it. What follows from it may be overridden where that is cheaper."""

    @abstractmethod
    def offsets(self, file: F) -> Offsets:
        """Of every row, deleted ones too, in the file's order. Reads the file."""

    @abstractmethod
    def deleted(self, file: F) -> OffsetSet:
        """Positions that are deleted by position."""

    def key(self, file: F) -> str:
        """The same for a file whatever is deleted from it."""
        return self.path(file)

    def path(self, file: F) -> str:
        """As `LakeFile.path` spells it."""
        return self.describe(file).path

    def bucket(self, file: F) -> Bucket | None:
        """None: it has rows of several, or does not say."""
        return self.describe(file).bucket

    def bounds(self, file: F) -> OffsetRange | None:
        """Of the offsets in it, where known without reading it."""
        return self.describe(file).offsets

    def rows(self, file: F) -> int:
        """Deleted ones too."""
        return self.describe(file).record_count

    def live_rows(self, file: F) -> int:
        return self.rows(file) - len(self.dead(file))

    def size(self, file: F) -> int:
        return self.describe(file).size_bytes

    def delete_files(self) -> int:
        """How many, for metrics."""
        return len({d.path for f in self.files for d in self.describe(f).deletes})

    def places(self, file: F) -> Sequence[tuple[Bucket | None, Offsets | None]]:
        """Which of its rows, by position, belong to which bucket; None: all."""
        return [(self.bucket(file), None)]

    def dead(self, file: F) -> OffsetSet:
        """Positions of rows that are deleted in any way."""
        return self.deleted(file)

    def live_positions(self, file: F) -> Offsets:
        every = np.arange(self.rows(file), dtype=np.int64)
        return every[~self.dead(file).mask(every)]

    def is_same(self, file: F, before: F) -> bool:
        """Does a file of the same key have the same rows deleted as before?"""
        return file == before

    def origins(self, bucket: Bucket | None, buckets: Collection[Bucket | None]) -> Collection[Bucket | None]:
        """Those of `buckets` that rows of this one may have come from when files were rewritten."""
        return [bucket] if bucket in buckets else []

    def is_input(self, file: F, planned: LakeFile) -> bool:
        """Is this live file the one that a rewrite was planned with? Its path is the same."""
        return True


class SnapshotFiles(AddressedFiles[F]):
    """Data files whose rows core reads."""

    @abstractmethod
    def read(self, files: Sequence[F], schema: pa.Schema) -> Iterator[pa.Table]:
        """Live rows in the files' order, with these columns; one that was added since a file was written is null."""

    def prune(self, files: Sequence[F], filter: pc.Expression, schema: pa.Schema) -> Sequence[F]:
        """Leaves out files in which no row matches. `schema`: the filter's columns."""
        return files


@dataclass(frozen=True, kw_only=True)
class WrittenFiles(Generic[F]):
    """What a round's writers made. `beside`: other files, passed to the log as they are."""

    files: Sequence[F]
    beside: Sequence[Any] = ()
    beside_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RewrittenFiles(Generic[F]):
    """What an executor made of one group: new files in the order of their rows, and per input where its rows went."""

    files: Sequence[F]
    ranks: Sequence[RankTable]


@dataclass(frozen=True, kw_only=True)
class Deletion(Generic[F]):
    """Rows that one file loses. `positions`: live until now; `dead`: deleted before."""

    file: F
    positions: OffsetSet
    deleted: OffsetSet


@dataclass(frozen=True, kw_only=True)
class MarkedFiles(Generic[F]):
    """Files after their deletions, in the same order; how many delete files were written, and their size."""

    files: Sequence[F]
    delete_files: int
    bytes_written: int


class StoredFiles(ABC, Generic[G]):
    """One table's files in storage, of whatever format. All calls may block and raise `LakeUnavailable`."""

    @abstractmethod
    def handle(self, ground: G, round_id: RoundId) -> bytes:
        """What writers need to know of the table, as versioned bytes."""

    @abstractmethod
    def prefix(self, round_id: RoundId) -> str:
        """What the paths of all files begin with that a round may write."""

    @abstractmethod
    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        """Files of ours in storage, referenced or not: under a round's prefix, or all."""

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        """`list_files` of several rounds, with one listing where a format lists a whole folder anyway."""
        return {prefix: list(self.list_files(prefix)) for prefix in prefixes}

    @abstractmethod
    def delete(self, path: str) -> int:
        """Returns the bytes freed; 0 where it is gone already."""

    def probe(self) -> None:
        """Writes and deletes a small file beside the data. Default: the files are in memory."""
        return


class FolderFiles(StoredFiles[G]):
    """Of a table that is a folder. `table`: its path, for messages. `data_folder`: below it lies what rounds write."""

    table: str
    folder: str
    data_folder: str
    storage: TableFiles
    errors: LakeErrors

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        with self.errors(self.table, "list files of"):
            return [f for f in self.storage.walk(self.data_folder) if prefix is None or f.path.startswith(prefix)]

    def delete(self, path: str) -> int:
        with self.errors(self.table, "delete a file of"):
            return self.storage.delete(path)

    def probe(self) -> None:
        with self.errors(self.table, "write and delete a probe file of"):
            self.storage.probe(self.folder)


class RowFiles(StoredFiles[G], Generic[G, F]):
    """Of a format whose rows are deleted by position."""

    @abstractmethod
    def at(self, ground: G, snapshot_id: SnapshotId | None = None) -> SnapshotFiles[F]:
        """Those of a snapshot (default: the ground's own, also where only columns changed since its head). The snapshot
        is one that the log still has."""

    @abstractmethod
    def among(self, ground: G, files: Sequence[F]) -> SnapshotFiles[F]:
        """Those that a commit will add."""

    @abstractmethod
    def schema(self, ground: G) -> pa.Schema:
        """Of rows as reads return them: today's columns, then the system columns."""

    @abstractmethod
    def parse_written(self, ground: G, results: Sequence[bytes]) -> WrittenFiles[F]: ...

    @abstractmethod
    def parse_rewritten(self, ground: G, result: RewriteResult) -> RewrittenFiles[F]: ...

    def number(self, ground: G, files: Sequence[F]) -> Sequence[F]:
        """New files as their commit will number them; called before rows of them are deleted."""
        return files

    @abstractmethod
    def mark_deleted(self, ground: G, round_id: RoundId, deletions: Sequence[Deletion[F]]) -> MarkedFiles[F]:
        """Writes delete files. A crash leaves files that no snapshot references."""

    def was_emptied(self, ground: G, planned: LakeFile, result: RewriteResult) -> bool:
        """Did a file leave the table since the plan because a round deleted its last row? If not, others moved it."""
        return False

    @abstractmethod
    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        """Positions that its deletes take out. Raises `LakeTampered`."""

    @abstractmethod
    def deleted_offsets(self, file: LakeFile) -> OffsetSet:
        """Offsets of the rows that its deletes take out."""
