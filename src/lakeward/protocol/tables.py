# SPDX-License-Identifier: Apache-2.0
"""Requests and answers about tables, databases, lakes, cuts and backups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeward.model import (
    Column,
    ColumnChanges,
    Cut,
    CutSchedule,
    CutState,
    TableDescriptor,
    TableInfo,
    TablePath,
    parse_type,
)


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

    coordinator_id: str | None = None
    """Stays the same when the server restarts; None from one of an older version."""

    max_batch_bytes: int = 64 * 1024 * 1024
    """The largest record batch that a put may hold."""


@dataclass(frozen=True, kw_only=True)
class AlterDatabase:
    """`lake`: where new tables are made that name none; None: where the server's configuration says."""

    lake: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatabaseStatus:
    """`tokens`: names of those that may use a table of it, for an administrator; none where everybody may."""

    name: str
    lake: str | None = None
    tables: int = 0
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LakeStatus:
    """`tables`: how many have a side there that is on. `trouble` is empty where the lake answered when it was asked
    last; `took_ms` says how long that took, where it was asked for this answer."""

    name: str
    format: str
    is_default: bool = False
    tables: int = 0
    trouble: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    took_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateCut:
    name: str
    tables: tuple[TablePath, ...]


@dataclass(frozen=True, kw_only=True)
class CutStatus:
    """State of a cut. `notes`: per side without a snapshot of the cut, why it waits or will never have one."""

    cut: Cut
    state: CutState
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CutScheduleStatus:
    """`cuts`: those that it made and that are there, oldest first. `trouble`: why the last one could not be made."""

    schedule: CutSchedule
    cuts: tuple[str, ...] = ()
    next_at_ms: int = 0
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class MakeBackup:
    """`target`: an absolute path on the server's machine, or `s3://bucket/prefix`."""

    target: str
    with_lake: bool = False
    """Also the files of lakes in folders of the server's machine."""


@dataclass(frozen=True, kw_only=True)
class BackupMade:
    name: str
    files: int
    bytes: int
    took_ms: int
    lakes: dict[str, int] = field(default_factory=dict)
    """Lakes that are in it -> bytes of their files."""

    lakes_left_out: dict[str, str] = field(default_factory=dict)
    """Lakes that are not -> where their tables are."""
