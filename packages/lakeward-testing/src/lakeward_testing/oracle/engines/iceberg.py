# SPDX-License-Identifier: Apache-2.0
"""Iceberg: PyIceberg, DuckDB, Polars and DataFusion read; PyIceberg and DuckDB change the table by the catalog."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.table import Table
from requests.exceptions import RequestException

from lakeward.lake.iceberg.connect.sqlcatalog import IcebergSqlCatalog
from lakeward.lake.iceberg.meta.types import to_iceberg_type
from lakeward.model import parse_type
from lakeward_testing.chaos.tables import Meddler
from lakeward_testing.oracle.columns import Alteration, AlterationKind
from lakeward_testing.oracle.engines.base import (
    FAR,
    Effect,
    Engines,
    Target,
    duckdb_with,
    foreign_copies,
    has_module,
    listed,
    select,
    some_keys,
    split,
)


class IcebergEngines(Engines):
    format = "iceberg"
    adds_columns_only = False
    versions = ("2", "3")
    """Of the table format, drawn for each table."""

    cannot_show = {"Polars": ("ROW<n1 INT NOT NULL",)}
    """Polars does not give a null ROW with a NOT NULL field to Arrow."""

    hurt = (CommitFailedException, RESTError, RequestException, OSError, ValueError)

    def __init__(self, url: str, warehouse: Path) -> None:
        super().__init__(url, warehouse)
        self._duckdb: Any = None
        self.read = {"PyIceberg": self._pyiceberg, "DuckDB": self._read_duckdb}
        if has_module("polars"):
            self.read["Polars"] = self._polars
        if has_module("datafusion") and has_module("pyiceberg_core.datafusion"):
            self.read["DataFusion"] = self._datafusion
        self.add(
            Effect.KEEPS,
            PyIceberg_rewrites_all_files=self._rewrite,
            PyIceberg_expires=self._expire,
            PyIceberg_commits_nothing=self._touch,
        )
        self.add(Effect.INSERTS, PyIceberg_appends=self._append, DuckDB_appends=self._append_duckdb)
        self.add(
            Effect.DELETES,
            PyIceberg_deletes=self._delete,
            DuckDB_deletes=self._delete_duckdb,
        )
        self.add(Effect.ALTERS, PyIceberg_overwrites=self._overwrite)
        self.add(Effect.ROLLS_BACK, somebody_rolls_back=self._roll_back)
        self.add(
            Effect.BREAKS_SCHEMA,
            somebody_renames_a_column_past_the_server=self._rename,
            somebody_drops_a_column_past_the_server=self._drop_column,
        )
        self.alters["PyIceberg"] = self._alter
        self.add(Effect.DROPS, somebody_drops_the_table=self._drop)

    def properties(self, chance: Random) -> dict[str, str]:
        return {**super().properties(chance), "iceberg.format-version": chance.choice(self.versions)}

    def can_read(self, reader: str, target: Target) -> bool:
        """Polars' own reader ends at a positional delete file that names two data files, as one of version 2 may.
        DataFusion refuses to read between ADD COLUMN and the next round, and reads no deletion vectors."""
        if not super().can_read(reader, target):
            return False
        table = self._load(target.path)
        if reader == "Polars":
            return not target.is_pk or table.metadata.format_version == 3
        if reader == "DataFusion":
            head = table.metadata.current_snapshot()
            is_behind = head is not None and head.schema_id != table.metadata.current_schema_id
            return not is_behind and not (target.is_pk and table.metadata.format_version == 3)
        return True

    # ---- readers ---------------------------------------------------------------------------------------------------
    @property
    def _catalog(self) -> Catalog:
        return load_catalog("oracle", type="rest", uri=f"{self.url}/iceberg")

    def _load(self, path: str) -> Table:
        return self._catalog.load_table(split(path))

    def _pyiceberg(self, path: str) -> pa.Table:
        return self._load(path).scan().to_arrow()

    def _read_duckdb(self, path: str) -> pa.Table:
        with self._attached().cursor() as cursor:
            return cursor.sql(select(f"lake.{path}")).to_arrow_table()

    def _polars(self, path: str) -> pa.Table:
        import polars

        frame = polars.scan_iceberg(self._load(path)).collect()
        assert isinstance(frame, polars.DataFrame)
        return frame.to_arrow()

    def _datafusion(self, path: str) -> pa.Table:
        from datafusion import SessionContext
        from pyiceberg_core.datafusion import IcebergDataFusionTable

        location = self._load(path).metadata_location
        provider = IcebergDataFusionTable(
            identifier=list(split(path)), metadata_location=location, file_io_properties={}
        )
        context = SessionContext()
        context.register_table("t", provider)
        return context.sql("SELECT * FROM t").to_arrow_table()

    def _attached(self) -> Any:
        """A connection anew each time: it keeps no table's metadata of before."""
        self.close()
        self._duckdb = duckdb_with("httpfs", "avro", "iceberg")
        self._duckdb.execute(
            f"ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{self.url}/iceberg', AUTHORIZATION_TYPE 'none')"
        )
        return self._duckdb

    def close(self) -> None:
        if self._duckdb is not None:
            self._duckdb.close()
            self._duckdb = None

    # ---- deeds -----------------------------------------------------------------------------------------------------
    def _engine(self, target: Target) -> Meddler:
        from lakeward.model import TablePath

        return Meddler(self._catalog, TablePath.parse(target.path))

    def _rewrite(self, target: Target, chance: Random) -> None:
        self._engine(target).rewrite(chance.randrange(1_000))

    def _expire(self, target: Target, chance: Random) -> None:
        self._engine(target).expire()

    def _touch(self, target: Target, chance: Random) -> None:
        self._engine(target).touch()

    def _append(self, target: Target, chance: Random) -> None:
        table = self._engine(target).load()
        table.append(foreign_copies(table.scan().to_arrow(), chance))

    def _delete(self, target: Target, chance: Random) -> list[Any]:
        table = self._engine(target).load()
        keys = some_keys(table.scan().to_arrow(), target.number, chance)
        with _without_warnings():
            table.delete(f"{target.number} in ({listed(keys)})")
        return keys

    def _overwrite(self, target: Target, chance: Random) -> None:
        """All rows go, a few come back with their addresses and without their values."""
        table = self._engine(target).load()
        rows = table.scan().to_arrow()
        some = rows.slice(0, chance.randint(1, 1 + rows.num_rows // 2))
        place = some.schema.get_field_index(target.column)
        field = some.schema.field(place)
        with _without_warnings():
            table.overwrite(some.set_column(place, field, pa.nulls(some.num_rows, field.type)))

    def _delete_duckdb(self, target: Target, chance: Random) -> list[Any]:
        keys = some_keys(self._pyiceberg(target.path), target.number, chance)
        self._run_duckdb("DELETE FROM", f"lake.{target.path}", "WHERE", f"{target.number} IN ({listed(keys)})")
        return keys

    def _append_duckdb(self, target: Target, chance: Random) -> None:
        names = self._load(target.path).schema().column_names
        columns = ", ".join(f'"{n}" + {FAR}' if n == "__offset" else f'"{n}"' for n in names)
        table = f"lake.{target.path}"
        self._run_duckdb("INSERT INTO", table, "SELECT", columns, "FROM", table, f"LIMIT {chance.randint(1, 20)}")

    def _run_duckdb(self, *words: str) -> None:
        import duckdb

        try:
            with self._attached().cursor() as cursor:
                cursor.execute(" ".join(words))
        except duckdb.Error as error:
            raise ValueError(str(error)) from error

    def _roll_back(self, target: Target, chance: Random) -> None:
        from lakeward.model import SnapshotId

        engine = self._engine(target)
        table = engine.load()
        head = table.current_snapshot()
        older = [] if head is None else [s for s in table.metadata.snapshots if s.snapshot_id != head.snapshot_id]
        if older:
            engine.roll_back(SnapshotId(str(chance.choice(older).snapshot_id)))

    def _past_the_server(self, target: Target) -> Table:
        """By the catalog's own database: the server does not see what is changed, so that rounds stop."""
        place = self.warehouse.parent / "iceberg" / "catalog.db"
        return IcebergSqlCatalog("lakeward", uri=f"sqlite:///{place}", warehouse=str(self.warehouse)).load_table(
            split(target.path)
        )

    def _rename(self, target: Target, chance: Random) -> None:
        with self._past_the_server(target).update_schema() as update:
            update.rename_column(target.column, f"{target.column}_theirs")

    def _drop_column(self, target: Target, chance: Random) -> None:
        with self._past_the_server(target).update_schema() as update:
            update.delete_column(target.column)

    def _alter(self, target: Target, change: Alteration) -> None:
        kind = parse_type(change.new) if change.kind in (AlterationKind.ADD, AlterationKind.WIDEN) else None
        with self._load(target.path).update_schema() as update:
            if change.kind is AlterationKind.RENAME:
                update.rename_column(change.column, change.new)
            elif change.kind is AlterationKind.DROP:
                update.delete_column(change.column)
            elif kind is not None and change.kind is AlterationKind.WIDEN:
                update.update_column(change.column, field_type=to_iceberg_type(kind, change.column))
            elif kind is not None:
                update.add_column(change.column, to_iceberg_type(kind, change.column))

    def _drop(self, target: Target, chance: Random) -> None:
        self._catalog.drop_table(split(target.path))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """PyIceberg says that it writes by copy though the table asks for merge-on-read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
