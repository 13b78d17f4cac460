# SPDX-License-Identifier: Apache-2.0
"""The way to a Paimon warehouse: its catalog, its tables, and what its errors mean."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from io import BytesIO
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.api.rest_exception import RESTException
from pypaimon.catalog.catalog_exception import (
    DatabaseNoPermissionException,
    DatabaseNotExistException,
    TableNoPermissionException,
    TableNotExistException,
)
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from lakeward.errors import InvalidConfig, LakeTableGone
from lakeward.lake.core import failures
from lakeward.lake.metadatabounds import MetadataBounds
from lakeward.lake.s3files import files_of
from lakeward.lake.tablefiles import LocalFiles, plain_path
from lakeward.lake.warehouse import Warehouse, missing_table, parse_location
from lakeward.model import TablePath


class _Bounded:
    """Storage of a catalog, through which the library reads schemas, which are text."""

    bounds: MetadataBounds
    plain: Any
    """The same without bounds: the native library knows its kind."""

    def read_file_utf8(self, path: str) -> str:
        with self.new_input_stream(path) as source:
            data: bytes = source.read(self.bounds.limit + 1)
        self.bounds.check_packed(path, len(data))
        return data.decode()

    def new_input_stream(self, path: str) -> Any:
        return super().new_input_stream(path)  # type: ignore[misc]


class _BoundedLocal(_Bounded, LocalFileIO):  # type: ignore[misc]
    def new_input_stream(self, path: str) -> Any:
        """Opens a regular file: reading a pipe could block."""
        file = self._to_file(path)
        if file.exists() and not stat.S_ISREG(os.stat(file).st_mode):
            raise OSError(f"{path} is not a regular file")
        return super().new_input_stream(path)


class _BoundedRemote(_Bounded, PyArrowFileIO):  # type: ignore[misc]
    pass


_BOUNDED = {LocalFileIO: _BoundedLocal, PyArrowFileIO: _BoundedRemote}


def bounded(file_io: Any, bounds: MetadataBounds) -> Any:
    """Returns the same storage with limits; another kind of storage unchanged."""
    kind = _BOUNDED.get(type(file_io))
    if kind is None:
        return file_io
    copied = kind.__new__(kind)
    copied.__dict__.update(file_io.__dict__, bounds=bounds, plain=file_io)
    return copied


def with_plain_files(lake_table: Any) -> Any:
    """Rows are read and written by the native library; later schemas are read with limits too."""
    lake_table.file_io = getattr(lake_table.file_io, "plain", lake_table.file_io)
    return lake_table


class BoundedManifests:
    """Storage of one table, for the library's classes that read manifests, their lists and index manifests."""

    def __init__(self, lake_table: Any) -> None:
        self._files, self._storage = files_of(lake_table), lake_table.file_io

    def __getattr__(self, name: str) -> Any:
        """Returns the files for writing and deleting."""
        return getattr(self._storage, name)

    def new_input_stream(self, path: str) -> BytesIO:
        """Raises `LakeMetadataTooLarge`, `LakePathRefused`, `OSError`, `ValueError`."""
        place = plain_path(path)
        data = self._files.read_bytes(place)
        if data is None:
            raise FileNotFoundError(place)
        self._files.bounds.check_avro(place, data)
        return BytesIO(data)


_WHERE, _URI = "datalake.paimon.warehouse", "datalake.paimon.uri"
_S3_KEYS = (
    ("endpoint", "s3.endpoint", "AWS_ENDPOINT_URL_S3"),
    ("region", "s3.region", "AWS_REGION"),
    ("access-key", "s3.access-key", "AWS_ACCESS_KEY_ID"),
    ("secret-key", "s3.secret-key", "AWS_SECRET_ACCESS_KEY"),
    ("security-token", "s3.security-token", "AWS_SESSION_TOKEN"),
)
"""Name, our option, environment variable."""

JDBC, REST = "jdbc", "rest"
SERVED = ("filesystem", JDBC, REST)
_WHY_NOT = {"hive": "pypaimon has no client for it"}
_DATABASES = {JDBC: "its database, jdbc:postgresql://...", REST: "its server, http://..."}
_TOKENS = "data-token.enabled"
_LEGACY = {"access-key": "fs.s3.accessKeyId", "secret-key": "fs.s3.accessKeySecret"}


_NOT_ALLOWED = (DatabaseNoPermissionException, TableNoPermissionException)
_OUTSIDE = (RuntimeError, ValueError, pa.ArrowException, RESTException, *_NOT_ALLOWED)
"""The native library raises every answer of a store as a ValueError."""


class PaimonConnection:
    """A connection. Cheap to create; connects on first use. Tables are loaded again each time, as other engines may
    have changed them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.kind = options.get("metastore", SERVED[0])
        if self.kind not in SERVED:
            why = _WHY_NOT.get(self.kind, "it is not known")
            reason = f"{self.kind!r} is not served, as {why}; {', '.join(SERVED)} catalogs are"
            raise InvalidConfig(where="datalake.paimon.metastore", reason=reason)
        if self.kind in _DATABASES and not options.get("uri"):
            raise InvalidConfig(where=_URI, reason=f"it is missing; name {_DATABASES[self.kind]}")
        if self.kind == REST and options.get(_TOKENS, "false").lower() == "true":
            reason = "files are read and written with keys of the configuration; tokens of the catalog are not served"
            raise InvalidConfig(where=f"datalake.paimon.{_TOKENS}", reason=reason)
        named = options.get("warehouse", "")
        self.warehouse = named if self.kind == REST else parse_location("paimon", named)
        """For a REST catalog a name that its server knows; the server returns the place of each table."""

        self._is_local = self.kind != REST and not self.warehouse.startswith("s3://")

    @contextmanager
    def catalog(self, table: str, what: str) -> Iterator[Any]:
        """Opens the catalog for one operation and translates its errors into lake errors. A JDBC catalog is opened for
        each: pypaimon's has one connection, which threads may not share, and whose reads stay in one transaction."""
        if self.kind != JDBC:
            with lake_errors(table, what):
                yield self._folders
            return
        with lake_errors(table, what), closing(self._open()) as catalog:
            yield catalog

    @cached_property
    def _folders(self) -> Any:
        return self._open()

    def _open(self) -> Any:
        try:
            catalog = CatalogFactory.create(self.catalog_options)
        except (ValueError, ImportError) as error:
            raise InvalidConfig(where=_URI if self.kind in _DATABASES else _WHERE, reason=str(error)) from error
        if hasattr(catalog, "file_io"):  # tables of a REST catalog have their own
            catalog.file_io = bounded(catalog.file_io, MetadataBounds.parse(self.options))
        return catalog

    @property
    def catalog_options(self) -> dict[str, str]:
        """Returns Paimon's options under the names that its libraries expect. S3 keys may come from the environment."""
        options = {**self.options, "warehouse": self.warehouse}
        if self._is_local:
            return options
        found = {name: options.get(key) or os.environ.get(variable, "") for name, key, variable in _S3_KEYS}
        both = {f"{prefix}{name}": value for prefix in ("s3.", "fs.s3.") for name, value in found.items() if value}
        legacy = {_LEGACY[name]: value for name, value in found.items() if name in _LEGACY and value}
        style = {"s3.path-style-access": "true"} if found["endpoint"] else {}
        return {**style, **both, **legacy, **options}

    def load(self, path: TablePath) -> Any:
        """Loads the table with its newest schema. Raises `LakeTableGone`, `LakeUnavailable`."""
        table = self.find(path)
        if table is None and self._is_local:
            raise missing_table("paimon", LocalFiles(), self.warehouse, str(path))
        if table is None:
            raise LakeTableGone(table=str(path))
        return table

    def find(self, path: TablePath) -> Any | None:
        """Loads a table; None: it does not exist. Raises `LakeUnavailable`."""
        try:
            with self.catalog(str(path), "load") as catalog:
                return with_plain_files(catalog.get_table(identifier(path)))
        except LakeTableGone:
            return None

    def check_writable(self) -> None:
        """Checks that the warehouse is writable. Raises `InvalidConfig`, which needs a person. The warehouse of a REST
        catalog is unknown before there is a table."""
        if self.kind == REST:
            return
        Warehouse("paimon", self.warehouse, self.catalog_options).check()


def identifier(path: TablePath) -> str:
    return f"{path.database}.{path.table}"


def _is_of_database(error: Exception) -> bool:
    """Error classes of the driver; every driver has its own, with the same names (PEP 249)."""
    return not {"DatabaseError", "InterfaceError"}.isdisjoint(c.__name__ for c in type(error).__mro__)


lake_errors = failures.lake_errors(
    "paimon", *_OUTSIDE, missing=(TableNotExistException, DatabaseNotExistException), is_transient=_is_of_database
)
