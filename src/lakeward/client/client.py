# SPDX-License-Identifier: Apache-2.0
"""The client: tables over HTTP, and a `Table` for their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from lakeward.client.columns import as_names, parse_columns, with_key
from lakeward.client.options import ClientOptions
from lakeward.client.show import show_client
from lakeward.client.table import Table
from lakeward.hot.embedded.plugin import CA, SERVER, EmbeddedPlugin
from lakeward.hot.embedded.remote.failure import doing
from lakeward.model import BucketFunction, Schema, TableDescriptor, TableInfo, TablePath, of_table
from lakeward.protocol import routes
from lakeward.protocol.codec import decode
from lakeward.protocol.operate import (
    LakeRestored,
    RebuildLake,
    ReconcileSchema,
    RestoreLake,
    SchemaReconciled,
    TierNowAnswer,
)
from lakeward.protocol.tables import AlterTable, CreateCut, CreateTable, CutStatus, ServerInfo, TableAnswer
from lakeward.protocol.views import TableStatus

FRESHNESS = "table.datalake.freshness"
LAKE = "table.datalake.enabled"

DROP_S = 300.0
"""A server closes and removes the files of every bucket before it answers: 10,000 of them for 2,000 partitions."""


class Client:
    """Threads may share it. Connects on first use, and again after a break or a fork."""

    def __init__(self, url: str, *, options: ClientOptions | None = None) -> None:
        self.options = options or ClientOptions()
        ca, self.server = self.options.ca, self.options.connect(url)
        self.plugin = EmbeddedPlugin(
            {SERVER: url, **({CA: ca} if ca else {})}, self.server, retry_s=self.options.retry_s
        )
        self.store = self.plugin.store()
        self._tables: WeakSet[Table] = WeakSet()

    @property
    def url(self) -> str:
        return self.server.url

    def info(self) -> ServerInfo:
        return self.server.info(fresh=True)

    def create_table(
        self,
        path: str,
        columns: Any,
        *,
        primary_key: str | Iterable[str] | None = None,
        partition_by: str | Iterable[str] | None = None,
        buckets: int = 1,
        bucket_key: str | Iterable[str] | None = None,
        bucket_function: str | None = None,
        freshness: str | timedelta | None = None,
        lake: bool | None = None,
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
        adopt: bool = False,
    ) -> Table:
        """Makes a table, in the lake first where it has one. `columns`: SQL text, an Arrow schema, a mapping,
        `Column`s, or a frame of pandas or polars, whose columns are taken and whose rows are not.

        `partition_by`: columns, or the year, month, day or hour of one (`"day(ts)"`).
        `freshness` is the longest a row may wait before the lake shows it (`"30 s"`, a timedelta); `lake` False keeps
        the table out of the lake. Raises `InvalidTable`, `TableAlreadyExists`, `LakeMismatch`, `LakeNotEmpty`."""
        all_properties = dict(properties or {})
        if freshness is not None:
            all_properties[FRESHNESS] = _duration(freshness)
        if lake is not None:
            all_properties[LAKE] = "true" if lake else "false"
        with of_table(path):
            descriptor = TableDescriptor(
                schema=Schema(columns=with_key(parse_columns(columns), as_names(primary_key))),
                primary_key=as_names(primary_key),
                partition_keys=as_names(partition_by),
                bucket_keys=as_names(bucket_key),
                bucket_count=buckets,
                bucket_function=BucketFunction(bucket_function or "fluss"),
                properties=all_properties,
                comment=comment,
            )
            request = CreateTable(
                path=TablePath.parse(path), descriptor=descriptor, adopt=adopt, if_not_exists=if_not_exists
            )
            return self._table(self.server.call(TableAnswer, "POST", routes.TABLES, request, repeatable=if_not_exists))

    def alter_table(
        self,
        path: str,
        *,
        add_columns: Any = (),
        rename: Mapping[str, str] | None = None,
        drop: str | Iterable[str] = (),
        widen: Mapping[str, str] | None = None,
        nullable: str | Iterable[str] = (),
        comments: Mapping[str, str | None] | None = None,
        after: Mapping[str, str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        dry_run: bool = False,
    ) -> Table:
        """Adds nullable columns; renames, drops, widens and moves columns, makes them nullable, comments them; sets
        properties (None removes one). No row is written again, and writers and reads that are under way go on.

        A field inside of a column is named by its path (`address.city`, `items.element.price`) and renamed to a name.
        Columns are named as they are before, in `after` (column -> the one before it, "" for the first place) as they
        are afterwards. The answer's `plan` says what happens where; with `dry_run` nothing does. Raises
        `TableNotFound`, and `InvalidAlter` before anything is changed, naming the lake that cannot."""
        with of_table(path):
            request = AlterTable(
                add_columns=tuple(c.to_json() for c in parse_columns(add_columns, has_paths=True))
                if add_columns
                else (),
                rename_columns=dict(rename or {}),
                drop_columns=as_names(drop),
                widen_columns=dict(widen or {}),
                nullable_columns=as_names(nullable),
                column_comments=dict(comments or {}),
                after=dict(after or {}),
                properties=dict(properties or {}),
                dry_run=dry_run,
            )
            is_repeatable = dry_run or not request.column_changes()
            return self._table(self.server.call(TableAnswer, "PATCH", _path(path), request, repeatable=is_repeatable))

    def drop_table(self, path: str, *, with_lake: bool = False) -> None:
        """Removes the hot side; the lake table stays. `with_lake`: it goes too, also where the hot side is gone before.
        Raises `TableNotFound`, `LakeForeign` and `InvalidRequest` for a lake table that is not ours.
        """
        params = {"with_lake": "true"} if with_lake else None
        limit_s = max(DROP_S, self.server.timeout_s)
        self.server.ask("DELETE", _path(path), params=params, repeatable=False, timeout_s=limit_s)

    def list_tables(self) -> list[str]:
        return [str(TablePath.parse(t["path"])) for t in self.server.ask("GET", routes.TABLES)["tables"]]

    def show_table(self, path: str) -> TableInfo:
        """Raises `TableNotFound`."""
        return self.server.call(TableAnswer, "GET", _path(path)).table

    def table(self, path: str) -> Table:
        """A table to write to and read from. Raises `TableNotFound`."""
        return self._table(self.server.call(TableAnswer, "GET", _path(path)))

    def read(self, path: str, **options: Any) -> Any:
        """A union read: the lake's history plus the hot tail, as Arrow. See `lakeward.read.arrow`."""
        with doing(f"a read of {path}"):
            table = self.table(path)
        return table.read(**options)

    def changes(self, path: str, since: Any = "earliest", until: Any = None, **options: Any) -> Any:
        """Every change of a table from a place on; see `Table.changes`."""
        return self.table(path).changes(since, until, **options)

    def subscribe(self, path: str, start: Any = "earliest", **options: Any) -> Any:
        """New rows of a table as they come, from a place on; see `Table.subscribe`."""
        return self.table(path).subscribe(start, **options)

    def duckdb(self) -> Any:
        """A DuckDB connection that has this server's catalog as `lake`: `SELECT * FROM lake.shop.orders`, the lake
        alone. Raises `InvalidRequest` where DuckDB's extensions are not installed (`pip install 'lakeward[cli]'`)."""
        from lakeward.read.duckdblake import connect_duckdb

        shown = self.server.authorization
        return connect_duckdb(self.url, token=None if shown is None else shown.removeprefix("Bearer "))

    def create_cut(self, name: str, tables: Iterable[str]) -> CutStatus:
        """Freezes the tables together; `read(..., cut=name)` shows them so once lakes have it. Raises `InvalidRequest`,
        `CutExists`."""
        request = CreateCut(name=name, tables=tuple(TablePath.parse(table) for table in tables))
        return self.server.call(CutStatus, "POST", routes.CUTS, request, repeatable=False)

    def cut(self, name: str) -> CutStatus:
        """Raises `CutNotFound`."""
        return self.plugin.coordinator().load_cut(name)

    def drop_cut(self, name: str) -> None:
        """Its snapshots may expire from now on. Raises `CutNotFound`."""
        self.server.ask("DELETE", routes.CUT.format(cut=quote(name, safe="")), repeatable=False)

    def tier_now(self, path: str, *, limit_s: float = 120.0, lake: str | None = None) -> TierNowAnswer:
        """Returns when everything acknowledged before the call is in the lake, or in all of the table's; `lake`: in
        that one. Raises `TimedOut` at the limit."""
        route = routes.TIER_NOW.format(table=TablePath.parse(path))
        params = {"limit_s": limit_s, **_of(lake)}
        body = self.server.ask("POST", route, params=params, timeout_s=limit_s + 10)
        return decode(TierNowAnswer, body)

    def reconcile_schema(
        self, path: str, *, dry_run: bool = False, take_over: bool = False, lake: str | None = None
    ) -> tuple[str, ...]:
        """Undoes changes of other engines to the lake table's columns or partitioning where rounds need it, and returns
        a description of each. `take_over`: columns that they added become the table's own; `dry_run` changes nothing;
        `lake`: this lake instead of the first. Raises `InvalidAlter` for a change that cannot be undone."""
        route = routes.RECONCILE_SCHEMA.format(table=TablePath.parse(path))
        request = ReconcileSchema(dry_run=dry_run, take_over=take_over)
        return self.server.call(SchemaReconciled, "POST", route, request, params=_of(lake)).changes

    def restore_lake(self, path: str, *, anew: bool = False, lake: str | None = None) -> str | None:
        """Restores a lake table that was dropped and returns the file that it came from. `anew`: if nothing is left,
        creates an empty one and returns None; a resync then writes what the hot store still has. Raises
        `InvalidRequest`."""
        route = routes.RESTORE_LAKE.format(table=TablePath.parse(path))
        return self.server.call(LakeRestored, "POST", route, RestoreLake(anew=anew), params=_of(lake)).source

    def rebuild_lake(self, path: str, *, discard_older: bool = False, lake: str | None = None) -> None:
        """Removes the lake table and has it written again from the hot store. `discard_older`: also where the lake
        alone has some rows, which are lost then. Raises `InvalidRequest`."""
        request = RebuildLake(discard_older=discard_older)
        route = routes.REBUILD_LAKE.format(table=TablePath.parse(path))
        self.server.call(TableStatus, "POST", route, request, params=_of(lake))

    def close(self) -> None:
        """Ends every connection. The client and its tables can be used again afterwards."""
        for table in list(self._tables):
            table.close()
        self.store.close()
        self.server.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Asks the server once, briefly: tables with freshness and lag."""
        return show_client(self)

    def _table(self, answer: TableAnswer) -> Table:
        table = Table(self, answer.table, warnings=answer.warnings, plan=answer.plan)
        self._tables.add(table)
        return table


def _path(path: str) -> str:
    return routes.TABLE.format(table=TablePath.parse(path))


def _of(lake: str | None) -> dict[str, str]:
    return {} if lake is None else {"side": lake}


def _duration(value: str | timedelta) -> str:
    return value if isinstance(value, str) else f"{round(value.total_seconds() * 1000)} ms"
