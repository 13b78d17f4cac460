# SPDX-License-Identifier: Apache-2.0
"""Data files of formats that delete rows by position: reading, marking rows deleted, listing, deleting."""

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
        """Describes a file for the plug point. Methods whose default uses this may be overridden if there is a cheaper
        way."""

    @abstractmethod
    def offsets(self, file: F) -> Offsets:
        """Reads the offset of every row, deleted rows included, in the file's order."""

    @abstractmethod
    def deleted(self, file: F) -> OffsetSet:
        """Returns the positions that positional deletes remove."""

    def key(self, file: F) -> str:
        """Identifies a file; the key stays the same when rows of the file are deleted."""
        return self.path(file)

    def path(self, file: F) -> str:
        """As `LakeFile.path` spells it."""
        return self.describe(file).path

    def bucket(self, file: F) -> Bucket | None:
        """None: the file has rows of several buckets, or does not record its bucket."""
        return self.describe(file).bucket

    def bounds(self, file: F) -> OffsetRange | None:
        """Returns the range of its offsets, if known without reading the file."""
        return self.describe(file).offsets

    def rows(self, file: F) -> int:
        """Counts all rows, deleted ones included."""
        return self.describe(file).record_count

    def live_rows(self, file: F) -> int:
        return self.rows(file) - len(self.dead(file))

    def size(self, file: F) -> int:
        return self.describe(file).size_bytes

    def delete_files(self) -> int:
        """Counts delete files, for metrics."""
        return len({d.path for f in self.files for d in self.describe(f).deletes})

    def places(self, file: F) -> Sequence[tuple[Bucket | None, Offsets | None]]:
        """Returns the positions of its rows per bucket; None: all of them."""
        return [(self.bucket(file), None)]

    def dead(self, file: F) -> OffsetSet:
        """Returns the positions of rows that are deleted in any way."""
        return self.deleted(file)

    def live_positions(self, file: F) -> Offsets:
        every = np.arange(self.rows(file), dtype=np.int64)
        return every[~self.dead(file).mask(every)]

    def is_same(self, file: F, before: F) -> bool:
        """Whether a file of the same key has the same rows deleted as before."""
        return file == before

    def origins(self, bucket: Bucket | None, buckets: Collection[Bucket | None]) -> Collection[Bucket | None]:
        """Returns the buckets among `buckets` whose rows may have moved to this file when files were rewritten."""
        return [bucket] if bucket in buckets else []

    def is_input(self, file: F, planned: LakeFile) -> bool:
        """Whether this live file is the one that a rewrite was planned with; both have the same path."""
        return True


class SnapshotFiles(AddressedFiles[F]):
    """Data files whose rows core reads."""

    @abstractmethod
    def read(self, files: Sequence[F], schema: pa.Schema) -> Iterator[pa.Table]:
        """Reads live rows in the files' order, with these columns; columns added since a file was written are null."""

    def prune(self, files: Sequence[F], filter: pc.Expression, schema: pa.Schema) -> Sequence[F]:
        """Leaves out files in which no row matches. `schema`: the filter's columns."""
        return files


@dataclass(frozen=True, kw_only=True)
class WrittenFiles(Generic[F]):
    """Files that a round's writers wrote. `beside`: other files, passed to the log unchanged."""

    files: Sequence[F]
    beside: Sequence[Any] = ()
    beside_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RewrittenFiles(Generic[F]):
    """Files that an executor wrote for one group: new files in the order of their rows, and for each input the new
    positions of its rows."""

    files: Sequence[F]
    ranks: Sequence[RankTable]


@dataclass(frozen=True, kw_only=True)
class Deletion(Generic[F]):
    """Rows to delete from one file. `positions`: rows that are live; `dead`: rows deleted before."""

    file: F
    positions: OffsetSet
    deleted: OffsetSet


@dataclass(frozen=True, kw_only=True)
class MarkedFiles(Generic[F]):
    """Files after their deletions, in the same order; number and size of the delete files written."""

    files: Sequence[F]
    delete_files: int
    bytes_written: int


class StoredFiles(ABC, Generic[G]):
    """Files of one table in storage, for any format. All calls may block and raise `LakeUnavailable`."""

    @abstractmethod
    def handle(self, ground: G, round_id: RoundId) -> bytes:
        """Returns the table's facts for writers, as versioned bytes."""

    @abstractmethod
    def prefix(self, round_id: RoundId) -> str:
        """Returns the prefix of all paths that a round may write."""

    @abstractmethod
    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        """Lists our files in storage, referenced or not: those of a round's prefix, or all."""

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        """`list_files` of several rounds, with a single listing if the format lists a whole folder anyway."""
        return {prefix: list(self.list_files(prefix)) for prefix in prefixes}

    @abstractmethod
    def delete(self, path: str) -> int:
        """Returns the bytes freed; 0 if the file does not exist."""

    def probe(self) -> None:
        """Writes and deletes a small file beside the data. Default: the files are in memory."""
        return


class FolderFiles(StoredFiles[G]):
    """Files of a table that is a folder. `table`: its path, for messages. `data_folder`: the folder that rounds write
    to."""

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
    """Files of a format whose rows are deleted by position."""

    @abstractmethod
    def at(self, ground: G, snapshot_id: SnapshotId | None = None) -> SnapshotFiles[F]:
        """Returns the files of a snapshot (default: the ground's own, also if only columns changed since its head). The
        log must still have the snapshot."""

    @abstractmethod
    def among(self, ground: G, files: Sequence[F]) -> SnapshotFiles[F]:
        """Returns the files that a commit will add."""

    @abstractmethod
    def schema(self, ground: G) -> pa.Schema:
        """Schema of rows as reads return them: the current columns, then the system columns."""

    @abstractmethod
    def parse_written(self, ground: G, results: Sequence[bytes]) -> WrittenFiles[F]: ...

    @abstractmethod
    def parse_rewritten(self, ground: G, result: RewriteResult) -> RewrittenFiles[F]: ...

    def number(self, ground: G, files: Sequence[F]) -> Sequence[F]:
        """Numbers new files as their commit will; called before rows of them are deleted."""
        return files

    @abstractmethod
    def mark_deleted(self, ground: G, round_id: RoundId, deletions: Sequence[Deletion[F]]) -> MarkedFiles[F]:
        """Writes delete files. A crash leaves files that no snapshot references."""

    def was_emptied(self, ground: G, planned: LakeFile, result: RewriteResult) -> bool:
        """Whether a file left the table since the plan because a round deleted its last row. If not, another engine
        moved it."""
        return False

    @abstractmethod
    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        """Returns the positions that the file's deletes remove. Raises `LakeTampered`."""

    @abstractmethod
    def row_offsets(self, file: LakeFile) -> Offsets:
        """Reads the offsets of all its rows, in their order."""
