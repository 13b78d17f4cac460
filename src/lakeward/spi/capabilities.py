# SPDX-License-Identifier: Apache-2.0
"""Capabilities of a lake format, as data: callers check them here and never test the format's name. A table that needs
more than its format can do is refused here, before anything is created or changed."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from enum import StrEnum
from warnings import warn

from lakeward.config import Config, options
from lakeward.config.options import ForeignRows
from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.model import (
    RETENTION_PROPERTY,
    SYSTEM_COLUMNS_PROPERTY,
    BucketFunction,
    ColumnChange,
    TableDescriptor,
    TableInfo,
    TablePath,
    diff_schemas,
    is_changelog,
)


class DeleteEncoding(StrEnum):
    POSITIONS = "positions"
    """Rows are named by file and position: needs `__prev_offset`."""

    EQUALITY = "equality"
    """Rows are named by key: for changelogs without `__prev_offset`."""

    NATIVE = "native"
    """The format merges by key itself (Paimon, Hudi): the writer is handed the changes (`SupportsChanges`)."""


class Lack(StrEnum):
    CONDITIONAL_COMMIT = "conditional_commit"
    """A commit cannot demand an exact head, so that a zombie cannot be fenced: the plugin is refused."""

    TAGS = "tags"
    """A commit does not tag its snapshot, which would keep it from expiry."""

    ADD_COLUMN = "add_column"
    PARTITIONS = "partitions"
    COMPOSITE_BUCKET_KEY = "composite_bucket_key"
    SNAPSHOT_EXPIRY = "snapshot_expiry"


_OLD_ARGUMENTS = (*Lack, "snapshot_names", "rewrites")


@dataclass(frozen=True, kw_only=True)
class LakeCapabilities:
    delete_encodings: frozenset[DeleteEncoding]
    """Empty: rows are only ever added, and tables with a primary key are refused."""

    one_writer_per_bucket: bool
    """A bucket's range may not be cut into sub-splits (Paimon's sequence numbers)."""

    lacks: frozenset[Lack] = frozenset()
    """Powers that every other format has, and this one has not."""

    time_partitions: bool = False
    """Tables can be partitioned by the year, month, day or hour of a column (`day(ts)`), and the format's own readers
    see the column and no other."""

    appends: bool = True
    """Tables without a primary key, whose rows are only ever added: log tables, and changelogs."""

    column_changes: frozenset[ColumnChange] = frozenset({ColumnChange.ADD})
    """Changes that `LakeCatalog.evolve` supports, besides appending columns where `add_column` says so."""

    bucket_function: BucketFunction = BucketFunction.FLUSS
    """The bucket function of the format's own layout, used for new tables where it supports their keys."""

    bucket_function_needed: bool = False
    """The format's own readers look for a key in the bucket that its function gives: a table whose rows were spread by
    another one cannot have this lake."""

    clean_tables: bool = False
    """Lake tables may do without the system columns."""

    conditional_commit: InitVar[bool | None] = None
    tags: InitVar[bool | None] = None
    add_column: InitVar[bool | None] = None
    partitions: InitVar[bool | None] = None
    composite_bucket_key: InitVar[bool | None] = None
    snapshot_expiry: InitVar[bool | None] = None
    snapshot_names: InitVar[bool | None] = None
    rewrites: InitVar[bool | None] = None
    """The last eight are arguments of plugins that were written for 0.1, and go with 0.3."""

    def __post_init__(self, *old: bool | None) -> None:
        given = {name: value for name, value in zip(_OLD_ARGUMENTS, old, strict=True) if value is not None}
        if not given:
            return
        what = f"LakeCapabilities({', '.join(given)}) goes with 0.3; name what a format cannot do in `lacks`"
        warn(what, DeprecationWarning, stacklevel=3)
        lacks = {Lack(name) for name, value in given.items() if not value and name in list(Lack)}
        object.__setattr__(self, "lacks", self.lacks | lacks)

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
    can_rewrite: bool = True,
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
    if descriptor.partition_keys and Lack.PARTITIONS in capabilities.lacks:
        raise refuse("partition_keys", ", ".join(descriptor.partition_keys), "partitions")
    if not capabilities.time_partitions and (times := [k for k in descriptor.partitioning if k.unit is not None]):
        what = (
            f"partitions by the time of a column here: put the table on an Iceberg or a Lance lake, or give it a "
            f"column with the {times[0].unit} (text or DATE) and partition by that"
        )
        raise refuse("partition_keys", str(times[0]), what)
    retention = descriptor.properties.get(RETENTION_PROPERTY)
    if retention is not None and is_changelog(descriptor.schema) and not can_rewrite:
        raise refuse(RETENTION_PROPERTY, retention, "files that we may take out again: its changelogs stay for ever")
    if len(descriptor.bucket_keys) > 1 and Lack.COMPOSITE_BUCKET_KEY in capabilities.lacks:
        raise refuse("bucket_keys", ", ".join(descriptor.bucket_keys), "bucket keys of several columns")


def check_bucket_function(
    format: str, capabilities: LakeCapabilities, path: TablePath, descriptor: TableDescriptor
) -> None:
    """Called when a table that has rows is given a lake. Raises `InvalidTable`."""
    made_with, of_format = descriptor.bucket_function, capabilities.bucket_function
    if capabilities.bucket_function_needed and descriptor.bucket_keys and made_with != of_format:
        reason = (
            f"its rows are in buckets by that function, and readers of {format} expect the buckets of {of_format}: "
            f"create a new table with this lake, and write the rows to it"
        )
        raise InvalidTable(table=str(path), field="bucket_function", value=str(made_with), reason=reason)


_WAY_OUT = (
    "Add a column instead, or make a new table and bring the rows over: "
    "lakeward read OLD --format arrow | lakeward write NEW - --format arrow"
)


_NO_DEFAULT = (
    "Add the column without a default and send its value with new rows; Iceberg's format version 3 alone has defaults "
    "for older rows"
)


def check_column_changes(format: str, capabilities: LakeCapabilities, table: TableInfo, after: TableInfo) -> None:
    """Called before columns change, with the table as it is and as it is to be. Raises `InvalidAlter`."""
    able = frozenset[ColumnChange]() if Lack.ADD_COLUMN in capabilities.lacks else capabilities.column_changes
    for one in diff_schemas(table.schema, after.schema):
        if one.kind not in able:
            can = ", ".join(sorted(able)) or "nothing"
            if one.kind is ColumnChange.DEFAULT:
                reason = f"its lake is in {format}, whose older rows would have NULL there. {_NO_DEFAULT}"
                raise InvalidAlter(table=str(table.path), change=str(one), reason=reason)
            reason = f"its lake is in {format}, whose columns we can change so: {can}. {_WAY_OUT}"
            raise InvalidAlter(table=str(table.path), change=str(one), reason=reason)


def removes_foreign_rows(table: TableInfo) -> bool:
    """This one property alone is read: a Fluss table may have `table.*` keys that are not ours."""
    option = options.TABLE_DATALAKE_FOREIGN_ROWS
    given = {k: v for k, v in table.descriptor.properties.items() if k == option.key}
    return Config().for_table(given).get(option) is ForeignRows.REMOVE
