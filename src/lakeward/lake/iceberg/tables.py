# SPDX-License-Identifier: Apache-2.0
"""Tables of an Iceberg catalog: looked up, checked, dropped, registered again."""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError

from lakeward.errors import LakeMetadataGone, LakeTableGone, LakeUnavailable
from lakeward.lake.iceberg.connect.connection import IcebergConnection, identifier
from lakeward.lake.iceberg.connect.forward import newest_left, newest_table_id
from lakeward.lake.iceberg.connect.warehouse import check_scheme, check_warehouse
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.mapping import LAKE_PREFIX, VERSION_KEY, check_descriptor
from lakeward.lake.iceberg.meta.version import check_version, choose_version
from lakeward.model import TableDescriptor, TableId, TableInfo, TablePath
from lakeward.spi import LakeCatalog, is_own


class IcebergTables(LakeCatalog):
    """Operations of a catalog that do not depend on columns."""

    def __init__(self, connection: IcebergConnection) -> None:
        self._connection = connection

    def check(self) -> None:
        catalog = self._connection.catalog
        with lake_errors("", "list namespaces"):
            catalog.list_namespaces()
        warehouse = self._connection.options.get("warehouse")
        if warehouse is not None and self._connection.options.get("type") != "rest":
            check_scheme(warehouse)
            check_warehouse(warehouse, self._connection.file_io({}, warehouse))

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_descriptor(path, descriptor)

    def properties_for_readers(self, path: TablePath, descriptor: TableDescriptor) -> dict[str, str]:
        version = descriptor.properties.get(f"{LAKE_PREFIX}{VERSION_KEY}")
        if version is None:
            return {f"{LAKE_PREFIX}{VERSION_KEY}": str(choose_version(path, descriptor))}
        check_descriptor(path, descriptor)
        check_version(path, descriptor, int(version))
        return {}

    def _ensure_namespace(self, path: TablePath) -> None:
        try:
            with lake_errors(str(path), "create namespace of"):
                self._connection.catalog.create_namespace_if_not_exists((path.database,))
        except NamespaceAlreadyExistsError:
            return
        except LakeUnavailable:
            # A SQL catalog reports a unique key violation to the loser of two creations, not "exists already".
            if not self._has_namespace(path):
                raise

    def _has_namespace(self, path: TablePath) -> bool:
        with lake_errors(str(path), "look for namespace of"):
            return (path.database,) in self._connection.catalog.list_namespaces()

    def exists(self, path: TablePath) -> bool:
        try:
            self._connection.load(path)
        except LakeTableGone:
            return False
        return True

    def location(self, path: TablePath) -> str:
        return str(self._connection.load(path).location())

    def table_id(self, path: TablePath) -> TableId | None:
        return newest_table_id(self._connection.load(path).metadata)

    def drop(self, path: TablePath) -> None:
        """Drops the table with the files that its snapshots name; other files in its folder stay, as they may be
        another table's."""
        with lake_errors(str(path), "drop"), suppress(NoSuchTableError, FileNotFoundError):
            self._connection.catalog.purge_table(identifier(path))

    def is_own_and_empty(self, path: TablePath) -> bool:
        metadata = self._connection.load(path).metadata
        return is_own(metadata.properties) and not metadata.snapshots

    def restore(self, table: TableInfo) -> str | None:
        left = newest_left(self._connection, table)
        self._forget_lost(table.path)
        if left is not None:
            self._ensure_namespace(table.path)
            with lake_errors(str(table.path), "register"):
                self._connection.catalog.register_table(identifier(table.path), left)
        return left

    def _forget_lost(self, path: TablePath) -> None:
        """Removes a table whose metadata file does not exist from the catalog: another file cannot be registered under
        its name."""
        try:
            self._connection.load(path)
        except LakeTableGone:
            return
        except LakeMetadataGone:
            with lake_errors(str(path), "drop"):
                self._connection.catalog.drop_table(identifier(path))
