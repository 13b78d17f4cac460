# SPDX-License-Identifier: Apache-2.0
"""Connection to a PyIceberg catalog: opened on first use, shared by threads, with timeouts on every call."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerAdapter
from pyiceberg.exceptions import NoSuchPropertyException, NotInstalledError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from requests.adapters import HTTPAdapter

from lakeward.errors import InvalidConfig
from lakeward.lake.iceberg.connect.vended import TABLE_MARK, VendedFileIO, VendedStorage, is_vended
from lakeward.lake.iceberg.meta.columnids import planned_view
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.ownpaths import OwnFileIO, allowed_paths, open_catalog, without_code
from lakeward.lake.iceberg.meta.tableproperties import ALLOWED_OPTION
from lakeward.model import Clock, SystemClock, TableInfo, TablePath
from lakeward.protocol.token import TokenSource
from lakeward.spi import DeleteEncoding, without_secrets

NAME_OPTION = "name"
TIMEOUT_OPTION = "request-timeout-s"
DELETES_OPTION = "deletes"
_TIMEOUT_S = 30.0


class _LimitedAdapter(HTTPAdapter):
    """Sets a timeout on requests without one: PyIceberg sets none, and a silent catalog would block a round."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._limit_s
        return super().send(request, *args, **kwargs)


class _RenewedToken(AuthManager):
    """Reads the token again: PyIceberg takes it once, but it may be renewed while the connection lasts."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def auth_header(self) -> str:
        return f"Bearer {self._source.current()}"


OWN_CALL = "X-Lakeward"
"""A header of all our calls to a REST catalog, by which the server recognises rounds and union reads."""

COORDINATOR_ID = "lakeward.coordinator-id"
"""A property of a catalog that runs in the process of a coordinator: it accepts leased commits of that coordinator's
tables."""


class IcebergConnection:
    """A connection. `options`: PyIceberg's catalog properties, plus `name`, `request-timeout-s` and `deletes`: how rows
    are deleted for hot stores that know no offsets of replaced rows, by `positions` or by `equality`."""

    def __init__(self, options: Mapping[str, str], clock: Clock | None = None, catalog: Catalog | None = None) -> None:
        self.options = dict(options)
        self.clock: Clock = clock or SystemClock()
        self.name = self.options.pop(NAME_OPTION, "lakeward")
        self._limit_s = float(self.options.pop(TIMEOUT_OPTION, _TIMEOUT_S))
        self.deletes = _parse_deletes(self.options.pop(DELETES_OPTION, DeleteEncoding.POSITIONS))
        self.allowed_properties = self.options.get(ALLOWED_OPTION, "")
        self._catalog = catalog
        self._storages: dict[tuple[Any, ...], FileIO] = {}
        self._vended: dict[str, VendedStorage] = {}
        self._lock = threading.Lock()

    @property
    def catalog(self) -> Catalog:
        with self._lock:
            if self._catalog is None:
                self._catalog = self._connect()
            return self._catalog

    def close(self) -> None:
        """Closes pooled connections. The next use connects again."""
        with self._lock:
            catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _connect(self) -> Catalog:
        options: dict[str, Any] = dict(self.options)
        if ca := TokenSource.find_ca(self.options.get("uri", "")):
            options["ssl"] = {"cabundle": ca}
        has_own = options.get("type") != "rest" or "token" in options
        token = TokenSource() if has_own else TokenSource.find_for(options.get("uri", ""))
        if secret := token.current():
            options["token"] = secret
        try:
            with lake_errors("", "catalog"):
                catalog = _open(self.name, options)
        except (ValueError, NoSuchPropertyException, NotInstalledError, ImportError, KeyError) as error:
            raise InvalidConfig(where="datalake.iceberg", reason=str(error)) from error
        if isinstance(catalog, RestCatalog):
            catalog._session.headers[OWN_CALL] = "1"
            for scheme in ("http://", "https://"):
                catalog._session.mount(scheme, _LimitedAdapter(self._limit_s))
            if secret:
                catalog._session.auth = AuthManagerAdapter(_RenewedToken(token))
        return catalog

    def removes_old_metadata(self, catalog: Catalog) -> bool:
        """Whether the catalog itself does the work of PyIceberg's table after a commit: REST servers and our own do."""
        return isinstance(catalog, RestCatalog) or self.options.get("type") == "sql"

    def load(self, path: TablePath) -> Table:
        """Loads the table. Raises `LakeTableGone`, `LakeUnavailable`."""
        with lake_errors(str(path), "load table"):
            table = self.catalog.load_table(identifier(path))
        with lake_errors(str(path), "look up the location of"):
            table.io = self.own_io(table)
        return table

    def load_planned(self, table: TableInfo) -> Table:
        """Loads the table with the column names of the schema that `table` has. Raises as `load`."""
        return as_planned(self.load(table.path), table)

    def own_io(self, table: Table) -> OwnFileIO:
        """Opens storage for files that the table's metadata names. Raises `LakePathRefused`."""
        return OwnFileIO(self._storage(table), allowed_paths(table, self.catalog, self.options))

    def _storage(self, table: Table) -> FileIO:
        if not is_vended(table.io.properties, self.options):
            return self._shared(table.io)
        vended = self._vended_storage(".".join(table.name()))
        vended.offer(table.io)
        return VendedFileIO(vended)

    def _vended_storage(self, name: str) -> VendedStorage:
        fetch = lambda: self.catalog.load_table(tuple(name.split("."))).io  # noqa: E731
        with self._lock:
            return self._vended.setdefault(name, VendedStorage(name, fetch, self.clock))

    def _shared(self, io: FileIO) -> FileIO:
        """Caches storage per set of properties: a client of an object store is expensive to create, and a round loads
        its table several times."""
        key = (type(io).__name__, *sorted((k, str(v)) for k, v in io.properties.items()))
        with self._lock:
            return self._storages.setdefault(key, io)

    def file_io(self, properties: Mapping[str, str], location: str) -> FileIO:
        """Opens storage for a writer: this process's options and environment, with endpoint and region from the handle.
        If the catalog vends credentials, the writer requests its own."""
        if table := properties.get(TABLE_MARK):
            return VendedFileIO(self._vended_storage(table))
        return self._shared(load_file_io({**without_code(properties), **self.options}, location))


def as_planned(lake_table: Table, table: TableInfo) -> Table:
    """As `load_planned`, for a loaded table."""
    metadata = planned_view(lake_table.metadata, table.schema)
    if metadata is lake_table.metadata:
        return lake_table
    return Table(lake_table.name(), metadata, lake_table.metadata_location, lake_table.io, lake_table.catalog)


def _parse_deletes(text: str) -> DeleteEncoding:
    if text not in (DeleteEncoding.POSITIONS, DeleteEncoding.EQUALITY):
        raise InvalidConfig(where=DELETES_OPTION, reason=f"{text!r} is neither positions nor equality")
    return DeleteEncoding(text)


def _open(name: str, options: dict[str, Any]) -> Catalog:
    if options.get("type") == "sql":
        from lakeward.lake.iceberg.connect.sqlcatalog import (
            IcebergSqlCatalog,
        )  # imports SQLAlchemy, which REST clients need not load

        return IcebergSqlCatalog(name, **{k: v for k, v in options.items() if k != "type"})
    return open_catalog(name, options)


def identifier(path: TablePath) -> tuple[str, str]:
    return path.database, path.table


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns properties without credentials, which come from each process's own environment."""
    return {k: str(v) for k, v in without_secrets(properties).items() if k != "uri"}
