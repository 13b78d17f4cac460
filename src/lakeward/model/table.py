# SPDX-License-Identifier: Apache-2.0
"""A table: its path, what it was created as, and its life (id, schema now)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import NoneType
from typing import Any

from lakeward.errors import InvalidTable
from lakeward.model.ids import TableId
from lakeward.model.partitionkey import PartitionKey
from lakeward.model.schema import CHANGE_TYPE, CHANGE_TYPE_ID, Column, Schema, typed
from lakeward.model.side import CHANGELOG_PROPERTY, Content, SideName
from lakeward.model.tablepath import UNNAMED
from lakeward.model.tablepath import TablePath as TablePath
from lakeward.model.types import StringType

FLUSS_PARTITIONS = "lakeward.fluss.partitions"
"""A property that tables of an Apache Fluss cluster carry: JSON, partition id -> name. Fluss counts offsets per id: a
partition that is dropped and made again begins at 0, under the same name."""

GONE_PARTITION = "#"
"""Prefix of the number of a partition that Fluss no longer has and whose name is unknown."""


SYSTEM_COLUMNS_PROPERTY = "table.datalake.system-columns"


class BucketFunction(StrEnum):
    """How a row's bucket is computed; fixed when the table is created."""

    FLUSS = "fluss"
    ICEBERG = "iceberg"
    PAIMON = "paimon"
    HUDI = "hudi"


@dataclass(frozen=True, kw_only=True)
class TableDescriptor:
    """The definition of a table from CREATE TABLE. `partition_keys`: columns, or times of columns (`day(ts)`).
    `bucket_keys` empty: rows of a log table are spread round-robin."""

    schema: Schema
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    bucket_count: int = 1
    bucket_function: BucketFunction = BucketFunction.FLUSS
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", dict(self.properties))
        object.__setattr__(self, "partition_keys", tuple(map(str, self.partitioning)))
        for what, names in (("primary key", self.primary_key), ("bucket key", self.bucket_keys)):
            self._check_names(what, names)
        self._check_partitioning()
        if not 1 <= self.bucket_count <= 10_000:
            raise self._wrong("bucket count", str(self.bucket_count), "1 to 10,000 are allowed")
        for name in self.primary_key:
            if self.schema.column(name).type.nullable:
                raise self._wrong("primary key", name, "the column is nullable; declare it NOT NULL")
        if self.primary_key:
            self._check_key_subsets()
        if set(self.bucket_keys) & {k.column for k in self.partitioning if k.unit is None}:
            raise self._wrong("bucket key", ",".join(self.bucket_keys), "a partition key cannot be a bucket key")

    def _check_names(self, what: str, names: tuple[str, ...]) -> None:
        if len(set(names)) < len(names):
            raise self._wrong(what, ",".join(names), "a column is named twice")
        for name in names:
            if name not in self.schema.names:
                raise self._wrong(what, name, f"no such column; there are {', '.join(self.schema.names)}")

    def _check_partitioning(self) -> None:
        for key in self.partitioning:
            if key.column not in self.schema.names and "(" in key.column:
                reason = "partitions are by a column, or by its time: year(c), month(c), day(c) or hour(c)"
                raise self._wrong("partition key", str(key), reason)
        self._check_names("partition key", self.partition_columns)
        for key in self.partitioning:
            if why_not := key.why_not(self.schema.column(key.column).type):
                raise self._wrong("partition key", str(key), why_not)

    def _check_key_subsets(self) -> None:
        key = set(self.primary_key)
        if outside := [n for n in self.partition_columns if n not in key]:
            reason = (
                f"partition keys of a PK table are part of its primary key, as a changed {outside[0]} would leave the "
                f"old row in another partition: add {', '.join(outside)} to the key, or do without these partitions"
            )
            raise self._wrong("partition key", ",".join(self.partition_keys), reason)
        if not key - {k.column for k in self.partitioning if k.unit is None}:
            raise self._wrong("primary key", ",".join(self.primary_key), "it needs a column that is no partition key")
        if not self.bucket_keys:
            rest = tuple(n for n in self.primary_key if n not in self.partition_columns)
            times = tuple(k.column for k in self.partitioning if k.unit is not None)
            object.__setattr__(self, "bucket_keys", rest or times)
        if not set(self.bucket_keys) <= key:
            raise self._wrong(
                "bucket key", ",".join(self.bucket_keys), "bucket keys of a PK table are part of its primary key"
            )

    def _wrong(self, what: str, value: str, reason: str) -> InvalidTable:
        return InvalidTable(table=UNNAMED, field=what, value=value, reason=reason)

    def with_schema(self, schema: Schema) -> TableDescriptor:
        """The table at another of its schemas. Keys are columns by their ids: they keep their columns and take the
        names that those have in `schema`. Raises `InvalidTable` where a key column is not in it."""
        if schema is self.schema:
            return self

        def name_of(key: str) -> str:
            column = self.schema.column(key)
            return schema.by_id.get(column.column_id, column).name

        return replace(
            self,
            schema=schema,
            primary_key=tuple(map(name_of, self.primary_key)),
            partition_keys=tuple(str(replace(k, column=name_of(k.column))) for k in self.partitioning),
            bucket_keys=tuple(map(name_of, self.bucket_keys)),
        )

    @property
    def is_pk(self) -> bool:
        return bool(self.primary_key)

    @property
    def is_partitioned(self) -> bool:
        return bool(self.partition_keys)

    @cached_property
    def partitioning(self) -> tuple[PartitionKey, ...]:
        return tuple(PartitionKey.parse(key, self.schema.names) for key in self.partition_keys)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns that decide a row's partition."""
        return tuple(key.column for key in self.partitioning)

    @property
    def is_clean(self) -> bool:
        """Whether its lake table was asked to have the user's columns alone."""
        return self.properties.get(SYSTEM_COLUMNS_PROPERTY, "true").strip().lower() == "false"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema.to_json(),
            "primary_key": list(self.primary_key),
            "partition_keys": list(self.partition_keys),
            "bucket_keys": list(self.bucket_keys),
            "bucket_count": self.bucket_count,
            "bucket_function": str(self.bucket_function),
            "properties": dict(self.properties),
            "comment": self.comment,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TableDescriptor:
        """Raises `InvalidTable`."""
        return cls(
            schema=Schema.from_json(typed(dict, body.get("schema"), "schema")),
            primary_key=_names(body, "primary_key"),
            partition_keys=_names(body, "partition_keys"),
            bucket_keys=_names(body, "bucket_keys"),
            bucket_count=typed(int, body.get("bucket_count", 1), "bucket count"),
            bucket_function=BucketFunction(body.get("bucket_function", "fluss")),
            properties={
                key: typed(str, value, f"property {key}")
                for key, value in typed(dict, body.get("properties", {}), "properties").items()
            },
            comment=typed((str, NoneType), body.get("comment"), "comment"),
        )


def _names(body: Mapping[str, Any], field: str) -> tuple[str, ...]:
    return tuple(typed(str, name, field) for name in typed((list, tuple), body.get(field, ()), field))


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """One life of a table: path, id, and the descriptor with its schema as it is now."""

    path: TablePath
    table_id: TableId
    descriptor: TableDescriptor
    created_at_ms: int = 0

    @property
    def schema(self) -> Schema:
        return self.descriptor.schema

    @property
    def is_pk(self) -> bool:
        return self.descriptor.is_pk

    def with_descriptor(self, descriptor: TableDescriptor) -> TableInfo:
        return replace(self, descriptor=descriptor)

    def with_schema(self, schema: Schema) -> TableInfo:
        """As `TableDescriptor.with_schema`."""
        return self.with_descriptor(self.descriptor.with_schema(schema))

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "table_id": self.table_id,
            "descriptor": self.descriptor.to_json(),
            "created_at_ms": self.created_at_ms,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TableInfo:
        return cls(
            path=TablePath.parse(body["path"]),
            table_id=TableId(body["table_id"]),
            descriptor=TableDescriptor.from_json(body["descriptor"]),
            created_at_ms=body.get("created_at_ms", 0),
        )


CHANGELOG_SUFFIX = "__changelog"
CLEAN = "table.datalake.system-columns"
"""A property that changelogs do not follow: without its offset a change says nothing."""

_CHANGE_COLUMN = Column(
    name=CHANGE_TYPE,
    type=StringType(nullable=False),
    comment="insert, update_before, update_after or delete",
    column_id=CHANGE_TYPE_ID,
)


def side_table(table: TableInfo, side: SideName | None) -> TableInfo:
    """The table as the side's lake has it: its name, its columns, and whether rows are ever replaced there."""
    if side is None or side.content is Content.STATE:
        return table
    descriptor, schema = table.descriptor, table.schema
    changes = replace(
        descriptor,
        # First: columns that are added come last in every format.
        schema=Schema(
            columns=(_CHANGE_COLUMN, *schema.columns), schema_id=schema.schema_id, highest_id=schema.highest_id
        ),
        primary_key=(),
        properties={k: v for k, v in descriptor.properties.items() if k != CLEAN},
        comment=f"every change of {table.path}",
    )
    return replace(table, path=changelog_path(table.path), descriptor=changes)


def is_changelog(schema: Schema) -> bool:
    """Is this the schema that `side_table` gives a changelog's lake table?"""
    return schema.names[0] == CHANGE_TYPE


def changelog_path(path: TablePath) -> TablePath:
    """Raises `InvalidTable` where the name would be too long."""
    try:
        return TablePath(path.database, f"{path.table}{CHANGELOG_SUFFIX}")
    except InvalidTable as error:
        reason = f"its changelog would be called {path.table}{CHANGELOG_SUFFIX}, and {error.reason}"
        raise InvalidTable(table=str(path), field=CHANGELOG_PROPERTY, value=path.table, reason=reason) from None
