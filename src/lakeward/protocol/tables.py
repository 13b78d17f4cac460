# SPDX-License-Identifier: Apache-2.0
"""DDL messages: what clients ask of the server about tables, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeward.model import Column, ColumnChanges, TableDescriptor, TableInfo, parse_type
from lakeward.model.table import TablePath


@dataclass(frozen=True, kw_only=True)
class CreateTable:
    path: TablePath
    descriptor: TableDescriptor
    adopt: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class DefineTable:
    """A new table as people write it: columns as in SQL, names with commas between them."""

    columns: str
    primary_key: str = ""
    partition_by: str = ""
    buckets: int = 1
    freshness: str | None = None
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class AlterTable:
    """Changes of columns as `ColumnChanges` has them, with types in SQL and columns as JSON; properties to set, or to
    remove where the value is null. `after`: column -> the one that it is to stand after, or "" to be the first."""

    add_columns: tuple[dict[str, Any], ...] = ()
    rename_columns: Mapping[str, str] = field(default_factory=dict)
    drop_columns: tuple[str, ...] = ()
    widen_columns: Mapping[str, str] = field(default_factory=dict)
    nullable_columns: tuple[str, ...] = ()
    column_comments: Mapping[str, str | None] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str | None] = field(default_factory=dict)
    dry_run: bool = False
    """Only the plan is made: nothing changes."""

    @classmethod
    def of_columns(cls, changes: ColumnChanges) -> AlterTable:
        return cls(
            add_columns=tuple(c.to_json() for c in changes.add),
            rename_columns=changes.rename,
            drop_columns=changes.drop,
            widen_columns={name: kind.sql for name, kind in changes.widen.items()},
            nullable_columns=changes.nullable,
            column_comments=changes.comments,
            after=changes.after,
        )

    def column_changes(self) -> ColumnChanges:
        """Raises `InvalidTable`, `InvalidRequest` for a type that is none."""
        return ColumnChanges(
            add=tuple(Column.from_json(c) for c in self.add_columns),
            rename=self.rename_columns,
            drop=self.drop_columns,
            widen={name: parse_type(text) for name, text in self.widen_columns.items()},
            nullable=self.nullable_columns,
            comments=self.column_comments,
            after=self.after,
        )


@dataclass(frozen=True, kw_only=True)
class TableAnswer:
    """`warnings` are for people: a pool without jobs, a freshness that is not feasible. `plan`: the effects of a change
    of columns, as text; after a dry run `table` is as it would be."""

    table: TableInfo
    created: bool = False
    warnings: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LakeAddress:
    """Address of a lake for peers: its format, and its options without secrets."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """The first answer that a client needs: versions, and the address of Flight."""

    version: str
    protocol: str
    flight_uri: str
    server_id: str
    coordinator_epoch: int
    lake_format: str | None = None
    iceberg_uri: str | None = None
    lake_options: Mapping[str, str] = field(default_factory=dict)
    """Options of that lake for peers, secrets left out."""

    lakes: Mapping[str, LakeAddress] = field(default_factory=dict)
    """Every lake by name; none from a server of an older version."""

    max_batch_bytes: int = 64 * 1024 * 1024
    """The largest record batch that a put may hold."""
