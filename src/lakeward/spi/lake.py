# SPDX-License-Identifier: Apache-2.0
"""The plug point for lake formats. A plugin is an entry point in group `lakeward.lake`: a callable that takes the
options below `datalake.<format>.` (prefix removed) and returns a `LakeStorage`.

Who holds what: the server holds a `LakeCatalog` (DDL) and a `LakeMaintenance`; a round's driver a `LakeReader` and a
`LakeCommitter`; executors a `LakeWriter` each. All but writers are safe to use from several threads, one table at a
time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest, LakeNotEmpty, LakeTableGone
from lakeward.model.bucket import Bucket
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.ids import RoundId, SnapshotId, TableId
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET, Column
from lakeward.model.split import Split
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.spi.capabilities import LakeCapabilities
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.intents import IntentStore
from lakeward.spi.lakefile import AdoptedRows, Expired, LakeDelete, LakeFile, LakeSnapshot, LakeTotals, StoredFile
from lakeward.spi.rewrite import PreparedRewrite, RewriteGroup, RewriteResult, RewriteTask
from lakeward.spi.snapshotkeys import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    EPOCH_KEY,
    FENCE_KEY,
    GENERATION_KEY,
    JOB_KEY,
    OFFSETS_KEY,
    ROUND_KEY,
    ROWS_KEY,
    TABLE_ID_KEY,
    TAG,
)

__all__ = [
    "COMMIT_USER",
    "COMMIT_USER_KEY",
    "EPOCH_KEY",
    "FENCE_KEY",
    "GENERATION_KEY",
    "JOB_KEY",
    "OFFSETS_KEY",
    "ROUND_KEY",
    "ROWS_KEY",
    "TABLE_ID_KEY",
    "TAG",
    "AdoptedRows",
    "CommitProperties",
    "Committable",
    "Expired",
    "LakeCatalog",
    "LakeCommitter",
    "LakeDelete",
    "LakeFile",
    "LakeMaintenance",
    "LakeReader",
    "LakeSnapshot",
    "LakeStorage",
    "LakeTotals",
    "LakeWriter",
    "Precondition",
    "PreparedRewrite",
    "Renewal",
    "RewriteGroup",
    "RewriteResult",
    "RewriteTask",
    "StoredFile",
    "WriteTask",
]


@dataclass(frozen=True, kw_only=True)
class WriteTask:
    """Everything an executor needs to write one split. `handle` is what `LakeCommitter.begin` returned."""

    round_id: RoundId
    table: TableInfo
    split: Split
    attempt: int
    handle: bytes


class LakeStorage(ABC):
    """A lake format with its configuration. Cheap to make; connects on first use."""

    name: str
    capabilities: LakeCapabilities

    @abstractmethod
    def catalog(self) -> LakeCatalog:
        """Called by the server for DDL. May block on the catalog."""

    @abstractmethod
    def open_writer(self, task: WriteTask) -> LakeWriter:
        """Called in an executor, once per split and attempt. Does not go to the catalog: `task.handle` has all it
        needs.
        """

    @abstractmethod
    def open_committer(self, table: TableInfo) -> LakeCommitter:
        """Called by a round's driver. May block on the catalog. Raises `LakeUnavailable`, `LakeTableGone`."""

    @abstractmethod
    def open_reader(self, table: TableInfo) -> LakeReader:
        """Called by a round's driver, union reads and verify. May block. Raises `LakeUnavailable`, `LakeTableGone`."""

    @abstractmethod
    def open_maintenance(self, table: TableInfo) -> LakeMaintenance:
        """Called by orphan removal and expiry. May block. Raises `LakeUnavailable`, `LakeTableGone`."""

    def takes_one_writer(self, table: TableInfo) -> bool:
        """Must a bucket's rows of a round come from one writer? As the capabilities say, unless tables differ."""
        return self.capabilities.one_writer_per_bucket

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        """Called in an executor: reads the files of one group with the deletes of the planned snapshot applied, and
        writes their rows in ascending offset order with today's columns. Does not go to the catalog.

        `is_due` is asked between row groups: once it says yes the work ends, and the answer is None. A crash, or an
        end, leaves files that no snapshot references. Raises `LakeUnavailable`, `LakeTampered`."""
        raise NotImplementedError(f"{self.name} does not rewrite files")

    def check_shared(self, table: TableInfo) -> None:
        """Refuses a lake table that a Fluss cluster made as rounds do not write it. May block. Raises `InvalidTable`,
        `LakeUnavailable`, `LakeTableGone`."""
        return

    def open_intents(self, table: TableInfo) -> IntentStore:
        """Intents kept beside the table, for a hot store whose coordinator keeps none (Apache Fluss). May block on the
        catalog.
        """
        raise NotImplementedError(f"{self.name} keeps no intents")


OWN_PROPERTY = "fluss.table.datalake."
"""What a property begins with that every lake table of ours has since its creation: its lakes, or its format."""


def is_own(properties: Iterable[str]) -> bool:
    """By the names of a lake table's properties."""
    return any(name.startswith(OWN_PROPERTY) for name in properties)


class LakeCatalog(ABC):
    """DDL on lake tables. Called by the server's federation, before the hot store is changed. All calls may block."""

    @abstractmethod
    def check(self) -> None:
        """At server start: is the configuration right and does the lake answer? Safe to repeat.

        Raises `InvalidConfig` for what a person must mend, `LakeUnavailable` for what may heal by itself."""

    @abstractmethod
    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        """Can this table exist in this format? Pure. Raises `UnsupportedType`, `InvalidTable`,
        `UnsupportedBucketKey`.
        """

    @abstractmethod
    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        """Creates the lake table; true if this call made it. Safe to repeat: one that exists and matches is taken.

        Raises `LakeMismatch` with a diff; `LakeNotEmpty` when it has snapshots, unless `adopt`. A crash leaves the lake
        table made or not made, nothing between."""

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        """Would `create` take the lake table of that name, if there is one? Asked of all of a table's lakes before the
        first is changed; changes nothing. Raises as `create`."""
        if self.exists(table.path):
            self.validate(table)
            if not adopt and self.table_id(table.path) not in (None, table.table_id):
                raise LakeNotEmpty(table=str(table.path))

    @abstractmethod
    def validate(self, table: TableInfo) -> None:
        """Does the lake table still fit? Raises `LakeMismatch`, `LakeTableGone`. Mutable properties do not count."""

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        """`properties`: what a table is to have; `said`: keys that somebody sets or removes now. Refuses, of those with
        the format's prefix, what nothing reads and values that rounds could not go by; what a table had before is not
        asked about. Pure. Raises `InvalidTable`."""
        return

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        """Would `add_columns` and `set_properties` take these? Asked of all of a table's lakes before the first is
        changed; changes nothing. Raises as they do, `LakeUnavailable` and `LakeTableGone` too."""
        if not self.exists(table.path):
            raise LakeTableGone(table=str(table.path))

    @abstractmethod
    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        """Adds nullable columns last, before the system columns. `table` is as before the change. Safe to repeat."""

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        """Makes the lake table's columns and partitioning what rounds need, after others changed them; what does no
        harm stays. Returns the changes in words, none where it fits; `dry_run` makes none. Safe to repeat.

        Raises `InvalidAlter` for what cannot go back, and then nothing is changed; `LakeUnavailable`,
        `LakeTableGone`. A format whose tables others cannot change says that all is well."""
        self.validate(table)
        return ()

    def drop(self, path: TablePath) -> None:
        """Removes a lake table with its rows and its history. Safe to repeat. After a crash in the middle nothing can
        be read, and files may be left. Raises `LakeUnavailable`, `InvalidRequest` for a format that cannot."""
        raise InvalidRequest(what=f"removal of lake table {path}", reason="its lake format cannot; remove it there")

    def is_own_and_empty(self, path: TablePath) -> bool:
        """Was a lake table that exists made by Lakeward, and never given a row? May block. False where a format cannot
        tell."""
        return False

    def restore(self, table: TableInfo) -> str | None:
        """Puts a lake table that is gone from its catalog back, at the newest state that is left of it. Returns what it
        was made from, in words; None where nothing is left, or a format cannot tell. Raises `LakeUnavailable`."""
        return None

    @abstractmethod
    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        """Sets properties, or removes those given as None, under the format's key mapping. Safe to repeat."""

    @abstractmethod
    def exists(self, path: TablePath) -> bool:
        """Is there a lake table of that name?"""

    def location(self, path: TablePath) -> str | None:
        """Where the files of a lake table that exists lie: the same for two lakes that are one place under two names.
        None: the format cannot tell. Raises `LakeUnavailable`, `LakeTableGone`."""
        return None

    def describe_foreign(
        self, path: TablePath, bucket_count: int = 1, primary_key: Sequence[str] = ()
    ) -> TableDescriptor:
        """What a lake table that others made is as a table of ours, in the layout that it has. Changes nothing; of rows
        it tells nothing.

        Raises `InvalidTable`, `UnsupportedType` where it cannot work, `InvalidRequest` for a format without such
        tables, `LakeUnavailable`, `LakeTableGone`."""
        reason = "of this lake format no tables are taken over that others made; Iceberg's are"
        raise InvalidRequest(what=f"adopting {path}", reason=reason)

    def warn_foreign(self, path: TablePath) -> tuple[str, ...]:
        """What whoever adopts a lake table that others made should know, in words. Changes nothing."""
        return ()

    @abstractmethod
    def table_id(self, path: TablePath) -> TableId | None:
        """The table id that our newest snapshot there carries; None without one. For adoption."""


class LakeWriter(ABC):
    """Writes one split. One thread, one use. Memory is bounded by one row group."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Rows to be live in the lake: the user's columns plus `__offset` and `__timestamp`, ascending by offset.

        `__bucket` and partition values come from the split. Blocks on storage. A crash leaves a file that no snapshot
        references. Raises `LakeUnavailable` and what the format refuses."""

    def delete_keys(self, batch: pa.RecordBatch) -> None:
        """Keys whose older rows go (equality encoding), in the order of the changelog relative to `write`."""
        raise NotImplementedError(f"{type(self).__name__} takes no keys")

    def write_changes(self, batch: pa.RecordBatch) -> None:
        """Changes of a PK table as they are in the changelog (native encoding): the user's columns, `__offset`,
        `__timestamp` and `__change_type`, in the changelog's order: of one key the last change counts. In a -D only key
        columns need be set. Blocks and raises as `write`."""
        raise NotImplementedError(f"{type(self).__name__} takes no changes")

    @abstractmethod
    def complete(self) -> bytes | None:
        """Closes the files and returns the WriteResult as small versioned bytes; None when no row came.

        A crash before the result reaches the driver leaves files for orphan removal."""

    @abstractmethod
    def abort(self) -> None:
        """Lets go of handles. Deletes nothing: only orphan removal deletes. Safe to repeat."""


class LakeCommitter(ABC):
    """One table's commits. `begin` before writing; `prepare` and `commit` after, again on each new head."""

    @abstractmethod
    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        """What writers need (schema, location, properties), as versioned bytes. From the table that `base` was read
        from; without one the catalog is asked, which a schema that changed since needs."""

    @abstractmethod
    def prefix(self, round_id: RoundId) -> str:
        """The name prefix of every file this round may write, for its intent. Known without a call after `begin`."""

    @abstractmethod
    def prepare(
        self,
        results: Sequence[bytes],
        replaced: Mapping[Bucket, OffsetSet],
        base: LakeBase,
        properties: CommitProperties,
        renewal: Renewal | None = None,
    ) -> Committable:
        """Resolve and build the commit on `base` (from `LakeReader.load_base` just before): replaced offsets become
        positions in files of the head or of `results`; delete files, manifests are written. Blocks on storage; does not
        load again what `base` was read from.

        `renewal`, where the round compared rows with the lake: its offsets go from files of the head and stay in those
        of `results`.

        Called again with a fresh base after a foreign commit; files of an earlier call are left to orphan removal.
        Raises `ReplacedRowMissing`, `LakeSchemaBroken`, `LakeUnavailable`; may raise `CommitConflict` if the head is
        no longer `base`'s, which `commit` finds at the latest."""

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
        raise NotImplementedError(f"{type(self).__name__} does not rewrite files")

    @abstractmethod
    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        """Checks the precondition on `committable.base` and commits on exactly that head and tag, as one snapshot; what
        `committable.expire` names leaves the table in the same step, its files stay for `delete_expired`.

        Safe to repeat unchanged: at most one of the calls takes effect. Raises `CommitConflict` (`lost` when the
        precondition is broken, `Precondition.breach`; else somebody else's commit came between), `CommitUnknown` when
        no answer came, `LakeTableGone`."""

    @abstractmethod
    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        """Did this round's commit take effect, as far as the lake's retained snapshots tell? Reads the lake anew."""


class LakeReader(ABC):
    """Reads one lake table, always anew from the catalog unless a snapshot is named."""

    @abstractmethod
    def load_base(self) -> LakeBase:
        """Reconcile (design.md 6.1): offsets, token and fence of the newest ancestor of main that is ours.

        Raises `LakeRolledBack`, `LakeForeign`, `LakeTampered`, `LakeUnavailable`, `LakeTableGone`."""

    def load_base_as_is(self) -> LakeBase:
        """As `load_base`, for a resync: a rollback by others is accepted, main's chain stands as it is found.

        Where a format cannot tell a rollback from progress this is `load_base`."""
        return self.load_base()

    @abstractmethod
    def snapshots(self) -> Sequence[LakeSnapshot]:
        """Retained snapshots, oldest first, foreign ones included (`round_id` None)."""

    @abstractmethod
    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        """One snapshot (default: main's head), with `offsets` from its newest ancestor of ours. None: no snapshot yet.

        Raises `SnapshotGone`."""

    @abstractmethod
    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        """Data files of a snapshot with the deletes that apply to each. Raises `SnapshotGone`."""

    @abstractmethod
    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Live rows of a snapshot, deletes applied, columns by the schema of today (field ids), system columns included
        when named in `columns` (default: the user's columns). Constant memory. Raises `SnapshotGone`,
        `LakeUnavailable`."""

    def scan_buckets(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket | None] | None = None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        """As `scan`, each batch with the bucket it is of; None where its file does not say (others wrote it under
        another spec).

        `without` leaves out more rows, by bucket and offset; `columns` are named then. It does not reach files without
        a bucket."""
        known = {f.bucket for f in self.files(snapshot_id)}
        chosen = known if buckets is None else known & set(buckets)
        for bucket in sorted(b for b in chosen if b is not None):
            gone = (without or {}).get(bucket)
            scanned = columns if not gone else list(dict.fromkeys((*(columns or ()), OFFSET)))
            for batch in self.scan(snapshot_id, columns=scanned, filter=filter, buckets=[bucket]):
                yield bucket, _without(batch, gone, columns or ()) if gone else batch

    def pinned(self) -> LakeReader:
        """A reader for one union read: it may answer from the table as it was loaded by this call. Default: itself."""
        return self

    @property
    def has_offsets(self) -> bool:
        """Whether rows say their own offsets, as columns that any engine reads. In a clean table only `scan` tells
        them, and only of files whose bounds are known; what is unknown is -1."""
        return True

    @property
    def counts_by_commit(self) -> bool:
        """Of a clean log table: whether files that do not say their offsets are counted in the order of their commits.
        A file that takes the place of others is given their age then, not that of the planned snapshot."""
        return True

    @property
    def adopted(self) -> AdoptedRows | None:
        """What was there when a table that others made was taken over; None of every other."""
        return None

    def scan_files(
        self, snapshot_id: SnapshotId, *, columns: Sequence[str], first: int = 0
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """As `scan`, file by file, in an order that is always the same; each batch with the number of its file, from
        this one on. For whoever must be able to go on in the middle."""
        raise NotImplementedError(f"{type(self).__name__} has no order of files")

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        """Offsets of the rows that a file's positional deletes and vectors take out of it, for engines that scan the
        file by themselves. None: not known. Equality deletes do not count. Raises `LakeUnavailable`."""
        return None

    def deleted_rows(self, file: LakeFile) -> Offsets:
        """Positions of the rows that a file's deletion vectors (and positional deletes) take out of it, ascending, for
        engines that scan the file by themselves. Formats without vectors need none. Raises `LakeUnavailable`,
        `LakeTampered`."""
        raise NotImplementedError

    def field_ids(self) -> Mapping[str, int]:
        """Column name of today -> field id in the data files, for engines that scan them by
        themselves. Empty: by name.
        """
        return {}

    @abstractmethod
    def totals(self) -> LakeTotals:
        """Figures of the head, for metrics. Cheap: from metadata."""


def _without(batch: pa.RecordBatch, gone: OffsetSet, columns: Sequence[str]) -> pa.RecordBatch:
    keep = ~gone.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    return batch.filter(pa.array(keep)).select(list(columns))


PROBE = "lakeward-probe-"
"""What the names of probe files begin with; no reader takes them for data."""


class LakeMaintenance(ABC):
    """Upkeep of one lake table. Deleting happens here and nowhere else."""

    @abstractmethod
    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        """Files of ours in storage, under a round's prefix or all. Offset caches are not listed; metadata files of the
        format only when all are asked for, and only those that our own catalog wrote."""

    def take_over(self, offsets: Mapping[Bucket, int], at: SnapshotId | None = None) -> AdoptedRows:
        """Makes a lake table that others made ours: a snapshot that changes no file, with our table id and these
        offsets. What was there is noted, and its snapshot named for ever. Safe to repeat, for the same table id and
        offsets. `at`: of a PK table, whose rows were read at this snapshot; it must be main's head.

        Raises `CommitConflict` where others keep committing, `LakeForeign` where another table was first."""
        raise NotImplementedError(f"{type(self).__name__} takes over nothing")

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        """`list_files` of several rounds. A format that lists a whole folder anyway does so once."""
        return {prefix: list(self.list_files(prefix)) for prefix in prefixes}

    @abstractmethod
    def references(self) -> set[str]:
        """Every file that a retained snapshot, tag or branch references, spelled as `list_files` spells paths."""

    @abstractmethod
    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        """Commits an empty snapshot with `fence + 1` and a new token on exactly `base`. Raises as `commit` does."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files, with the caches beside them; returns the bytes freed. A file that is gone is no error."""

    def probe(self) -> bool:
        """Writes a small file where the table's data lies and deletes it; False: this format has no such probe. Raises
        what the lake raises. Safe to repeat."""
        return False

    @abstractmethod
    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        """Snapshots that the table's `history.expire.*` properties let go; never the tagged one, main's head or a
        branch's or tag's. The caller marks them where read leases are kept, then calls `expire`."""

    @abstractmethod
    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        """Removes these snapshots, then the files that only they referenced; returns the bytes freed. Safe to repeat; a
        crash in between only delays the deletion (`delete_expired` finishes it)."""

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        """Gives a snapshot a name that keeps it from anybody's expiry, and by which other engines find it; readers of
        ours find it for as long as it has one. Called where `LakeCapabilities.snapshot_names` says so. Safe to repeat;
        a name that is there moves. Raises `LakeUnavailable`, `SnapshotGone`."""
        raise NotImplementedError(f"{type(self).__name__} has no names for snapshots")

    def untag(self, name: str) -> None:
        """Called and raises as `tag`. Safe to repeat, and where there never was such a name."""
        raise NotImplementedError(f"{type(self).__name__} has no names for snapshots")

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        """Deletes what only these snapshots referenced; those that the table still has are left alone, and are not in
        the answer. Called after a round's commit took them out, or after a crash. Safe to repeat, also after a crash of
        its own."""
        raise NotImplementedError(f"{type(self).__name__} does not expire snapshots")
