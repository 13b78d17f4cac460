# SPDX-License-Identifier: Apache-2.0
"""What a lake format can do, as data: callers ask here and never look at the format's name. What a table needs and its
format lacks is refused here, before anything is created or changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakeward.errors import InvalidTable
from lakeward.model.side import RETENTION_PROPERTY
from lakeward.model.sidetable import is_changelog
from lakeward.model.table import SYSTEM_COLUMNS_PROPERTY, BucketFunction, TableDescriptor, TablePath


class DeleteEncoding(StrEnum):
    POSITIONS = "positions"
    """Rows are named by file and position: needs `__prev_offset`."""

    EQUALITY = "equality"
    """Rows are named by key: for changelogs without `__prev_offset`."""

    NATIVE = "native"
    """The format merges by key itself (Paimon, Hudi): the writer is handed the changes (`LakeWriter.write_changes`)."""


@dataclass(frozen=True, kw_only=True)
class LakeCapabilities:
    delete_encodings: frozenset[DeleteEncoding]
    """Empty: rows are only ever added, and tables with a primary key are refused."""

    one_writer_per_bucket: bool
    """A bucket's range may not be cut into sub-splits (Paimon's sequence numbers)."""

    conditional_commit: bool
    """A commit can demand an exact head. Without it a zombie cannot be fenced, and the plugin is refused."""

    tags: bool
    """Our newest snapshot is tagged by its own commit, which keeps it from expiry. The contract suite holds a format to
    it."""

    add_column: bool
    partitions: bool
    composite_bucket_key: bool
    snapshot_expiry: bool
    time_partitions: bool = False
    """Tables can be partitioned by the year, month, day or hour of a column (`day(ts)`), and the format's own readers
    see the column and no other."""

    appends: bool = True
    """Tables without a primary key, whose rows are only ever added: log tables, and changelogs."""

    bucket_function: BucketFunction = BucketFunction.FLUSS
    """The one that the format's own layout goes by: tables are made with it where it takes their keys."""

    bucket_function_needed: bool = False
    """The format's own readers look for a key in the bucket that its function gives: a table whose rows were spread by
    another one cannot have this lake."""

    clean_tables: bool = False
    """Lake tables may do without the system columns."""

    snapshot_names: bool = False
    """Snapshots can be given names that keep them from everybody's expiry (`LakeMaintenance.tag`): those of cuts are.
    Without it only our own expiry spares them."""

    rewrites: bool = False
    """Data files can be rewritten by us (`LakeStorage.rewrite`, `LakeCommitter.prepare_rewrite`). Without it nobody
    compacts the format's tables."""

    @property
    def upserts(self) -> bool:
        return bool(self.delete_encodings)

    def encoding(self, *, has_prev_offset: bool) -> DeleteEncoding | None:
        """How changes of a hot store reach this format; None: not at all."""
        order = [DeleteEncoding.POSITIONS] if has_prev_offset else []
        order += [DeleteEncoding.EQUALITY, DeleteEncoding.NATIVE]
        return next((e for e in order if e in self.delete_encodings), None)


def check_table(
    format: str,
    capabilities: LakeCapabilities,
    path: TablePath,
    descriptor: TableDescriptor,
    *,
    has_prev_offset: bool = True,
) -> None:
    """Called when a table is created, or its lake switched on. Raises `InvalidTable`."""

    def refuse(field: str, value: str, what: str) -> InvalidTable:
        return InvalidTable(table=str(path), field=field, value=value, reason=f"the lake format {format} has no {what}")

    if descriptor.is_clean and not capabilities.clean_tables:
        raise refuse(SYSTEM_COLUMNS_PROPERTY, "false", "tables without system columns")
    if descriptor.is_pk and capabilities.encoding(has_prev_offset=has_prev_offset) is None:
        what = "upserts" if not capabilities.upserts else "way to replace rows of this hot store"
        raise refuse("primary_key", ", ".join(descriptor.primary_key), what)
    if not descriptor.is_pk and not capabilities.appends:
        raise refuse("primary_key", "none", "tables to which rows are only added")
    if descriptor.partition_keys and not capabilities.partitions:
        raise refuse("partition_keys", ", ".join(descriptor.partition_keys), "partitions")
    if not capabilities.time_partitions and (times := [k for k in descriptor.partitioning if k.unit is not None]):
        what = (
            f"partitions by the time of a column here: put the table on an Iceberg or a Lance lake, or give it a "
            f"column with the {times[0].unit} (text or DATE) and partition by that"
        )
        raise refuse("partition_keys", str(times[0]), what)
    retention = descriptor.properties.get(RETENTION_PROPERTY)
    if retention is not None and is_changelog(descriptor.schema) and not capabilities.rewrites:
        raise refuse(RETENTION_PROPERTY, retention, "files that we may take out again: its changelogs stay for ever")
    if len(descriptor.bucket_keys) > 1 and not capabilities.composite_bucket_key:
        raise refuse("bucket_keys", ", ".join(descriptor.bucket_keys), "bucket keys of several columns")


def check_bucket_function(
    format: str, capabilities: LakeCapabilities, path: TablePath, descriptor: TableDescriptor
) -> None:
    """Called when a table that has rows is given a lake. Raises `InvalidTable`."""
    made_with, own = descriptor.bucket_function, capabilities.bucket_function
    if capabilities.bucket_function_needed and descriptor.bucket_keys and made_with != own:
        reason = (
            f"its rows are spread by that function, and readers of {format} look for a key where the function {own} "
            f"puts it: make a table anew that has this lake from the start, and write its rows there"
        )
        raise InvalidTable(table=str(path), field="bucket_function", value=str(made_with), reason=reason)


def check_added_columns(format: str, capabilities: LakeCapabilities, path: TablePath, columns: list[str]) -> None:
    """Called when columns are added. Raises `InvalidTable`."""
    if columns and not capabilities.add_column:
        reason = f"the lake format {format} cannot add columns"
        raise InvalidTable(table=str(path), field="add_columns", value=", ".join(columns), reason=reason)
