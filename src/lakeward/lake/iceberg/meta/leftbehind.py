# SPDX-License-Identifier: Apache-2.0
"""What is left of a table that somebody dropped: catalogs forget a table and leave its files, unless told otherwise."""

from __future__ import annotations

from pyiceberg.exceptions import NoSuchNamespaceError, ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.iceberg.meta.ancestry import walk
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.folder import list_folder
from lakeward.lake.iceberg.meta.metadatafile import load_metadata
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.model import TableId, TableInfo
from lakeward.spi import TABLE_ID_KEY

_SUFFIX = ".metadata.json"


def newest_left(connection: IcebergConnection, table: TableInfo) -> str | None:
    """The newest metadata file of this very table where its catalog would put it, if the files of its head are there
    too. Raises `LakeUnavailable`.
    """
    with lake_errors(str(table.path), "look for what is left of"):
        folder = _folder(connection, table)
        if folder is None:
            return None
        io = PyArrowFileIO(dict(connection.options))
        names = [f.path for f in list_folder(io, folder) if f.path.endswith(_SUFFIX)]
        versions = [(m.last_updated_ms, m, name) for name in names if (m := _read(io, name)) is not None]
        ours = [v for v in versions if newest_table_id(v[1]) == table.table_id]
        if not ours:
            return None
        _, metadata, name = max(ours, key=lambda v: (v[0], v[2]))
        head = metadata.current_snapshot()
        return name if head is not None and io.new_input(head.manifest_list).exists() else None


def newest_table_id(metadata: TableMetadata) -> TableId | None:
    for snapshot in walk(metadata).chain:
        table_id = summary_of(snapshot).get(TABLE_ID_KEY)
        if table_id is not None:
            return TableId(table_id)
    return None


def _folder(connection: IcebergConnection, table: TableInfo) -> str | None:
    """None where only the catalog knows: a REST catalog of others."""
    path = table.path
    try:
        root = connection.catalog.load_namespace_properties((path.database,)).get("location")
    except NoSuchNamespaceError:
        root = None
    warehouse = connection.options.get("warehouse")
    if not root and warehouse and connection.options.get("type") != "rest":
        root = f"{warehouse.rstrip('/')}/{path.database}"
    return f"{root.rstrip('/')}/{path.table}/metadata" if root else None


def _read(io: PyArrowFileIO, location: str) -> TableMetadata | None:
    """None for one that is not whole: it never was the table's."""
    try:
        return load_metadata(io, location, io.properties)
    except (FileNotFoundError, ValueError, ValidationError):
        return None
