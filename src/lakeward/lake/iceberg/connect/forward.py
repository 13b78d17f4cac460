# SPDX-License-Identifier: Apache-2.0
"""Moves a catalog that was restored from an older copy forward: each table's pointer to the table's newest metadata
file.

The copy names an older file, which later commits delete after `write.metadata.previous-versions-max` versions. The
newest one lies in the same folder; this catalog wrote it, so its name has the catalog's mark. A pointer never moves
backwards or to another table's file.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.exceptions import NoSuchNamespaceError, ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadata

from lakeward.errors import LakeHistoriesDiffer
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.connect.metadatafile import load_metadata
from lakeward.lake.iceberg.connect.sqlcatalog import IcebergSqlCatalog
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import carries, list_folder, names_table
from lakeward.lake.iceberg.meta.summary import summary_of, walk
from lakeward.model import TableId, TableInfo
from lakeward.spi import TABLE_ID_KEY


@dataclass(frozen=True, kw_only=True)
class MetadataVersion:
    """Place of one metadata file in a table's history. Names are file names, without folders."""

    location: str
    table_uuid: uuid.UUID
    updated_at_ms: int
    before: tuple[str, ...] = ()
    """Names of the versions it was made from, as far back as it knows."""

    @property
    def name(self) -> str:
        return _name(self.location)

    @property
    def number(self) -> int:
        return _number(self.location)

    def __str__(self) -> str:
        return f"{self.location} of {datetime.fromtimestamp(self.updated_at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Outcome for one table's pointer. `after` None: it was not moved, and `words` gives the reason."""

    table: str
    before: str
    after: str | None = None
    words: str


def move_forward(connection: IcebergConnection) -> list[Forward]:
    """Called once, before the catalog is used. All moves are planned before the first pointer moves; after a crash a
    repeated call moves the rest. Raises `LakeHistoriesDiffer`, `LakeUnavailable`."""
    catalog = connection.catalog
    assert isinstance(catalog, IcebergSqlCatalog)
    io = PyArrowFileIO(dict(connection.options))
    with lake_errors("", "read the catalog's tables"):
        pointers = catalog.pointers()
    planned = {name: _plan(catalog, io, ".".join(name), pointer) for name, pointer in sorted(pointers.items())}
    moves = {name: forward for name, forward in planned.items() if forward is not None}
    for name, forward in moves.items():
        if forward.after is not None:
            with lake_errors(forward.table, "move the catalog's pointer of"):
                catalog.swap(name, forward.before, forward.after)
    return list(moves.values())


def _plan(catalog: IcebergSqlCatalog, io: PyArrowFileIO, table: str, pointer: str) -> Forward | None:
    """Plans one table's move; None: the pointer is the newest."""
    with lake_errors(table, "read metadata files of"):
        here, versions = _find(io, pointer, catalog.mark or "")
    ours = [v for v in versions if _is_same(v, here, pointer, catalog.mark or "")]
    newest = plan_forward(table, pointer, here, ours)
    if newest is not None:
        words = f"moved from version {_number(pointer)} to version {newest.number}: {newest}"
        return Forward(table=table, before=pointer, after=newest.location, words=words)
    if here is not None:
        return None
    return Forward(
        table=table,
        before=pointer,
        words=f"not moved: {pointer} is gone, and {_why_not(pointer, versions, catalog.mark or '')}",
    )


def _why_not(pointer: str, versions: Sequence[MetadataVersion], mark: str) -> str:
    if not versions:
        return "no newer one is there"
    if not carries(pointer, mark):
        return (
            f"its name does not say whether {versions[-1]} is of the same table; if so, register that one in its place"
        )
    return f"{versions[-1]} is of another table, made later in the same folder"


def plan_forward(
    table: str, pointer: str, here: MetadataVersion | None, versions: Sequence[MetadataVersion]
) -> MetadataVersion | None:
    """Selects the newest of `found`, all of this table and from its catalog; None if none is newer than the pointer's
    file. `here`: that file, if it exists. Raises `LakeHistoriesDiffer` if the newest does not follow from it, or if
    another may be as new."""
    ahead = {v.name: v for v in versions if v.number > _number(pointer)}
    if not ahead:
        return None
    newest = max(ahead.values(), key=lambda v: v.number)
    history = _history(newest, ahead)
    at_pointer = [name for name in history if _number(name) == _number(pointer)]
    if (here is not None or at_pointer) and _name(pointer) not in history:
        raise LakeHistoriesDiffer(table=table, one=str(here or pointer), other=str(newest))
    rivals = [other for other in ahead.values() if _is_rival(other, newest, history, ahead)]
    if rivals:
        raise LakeHistoriesDiffer(table=table, one=str(max(rivals, key=lambda v: v.number)), other=str(newest))
    return newest


def _history(newest: MetadataVersion, ahead: Mapping[str, MetadataVersion]) -> set[str]:
    """Returns the names of its ancestors: a version names the last ones before it, and the oldest of those the ones
    before that."""
    history = {newest.name, *newest.before}
    oldest = min(history, key=_number)
    while oldest in ahead and not history.issuperset(ahead[oldest].before):
        history.update(ahead[oldest].before)
        oldest = min(history, key=_number)
    return history


def _is_rival(
    other: MetadataVersion, newest: MetadataVersion, history: set[str], ahead: Mapping[str, MetadataVersion]
) -> bool:
    """Returns versions outside the newest one's history. A crashed commit leaves one file that is older than the newest
    and has no successor; anything else is a separate history, as after a start without --restored."""
    if other.name in history:
        return False
    if other.number == newest.number or other.updated_at_ms > newest.updated_at_ms:
        return True
    is_reached = other.number >= min(map(_number, history))
    return is_reached and any(other.name in v.before for v in ahead.values())


def _is_same(version: MetadataVersion, here: MetadataVersion | None, pointer: str, mark: str) -> bool:
    return (
        version.table_uuid == here.table_uuid
        if here is not None
        else names_table(_name(pointer), mark, version.table_uuid)
    )


def _find(io: PyArrowFileIO, pointer: str, mark: str) -> tuple[MetadataVersion | None, list[MetadataVersion]]:
    """Finds the pointer's file, and files with higher numbers in its folder that the catalog of this mark wrote."""
    folder = pointer.rpartition("/")[0]
    names = [
        f.name for f in list_folder(io, folder) if mark and carries(f.name, mark) and _number(f.name) > _number(pointer)
    ]
    read = [_read(io, f"{folder}/{name}") for name in sorted(names)]
    return _read(io, pointer), [version for version in read if version is not None]


def _read(io: PyArrowFileIO, location: str) -> MetadataVersion | None:
    """Reads a file; None if it is missing or incomplete: a file is on disk before a catalog names it, so an incomplete
    one was never the table's."""
    try:
        metadata = load_metadata(io, location, io.properties)
    except (FileNotFoundError, ValueError, ValidationError):
        return None
    return MetadataVersion(
        location=location,
        table_uuid=metadata.table_uuid,
        updated_at_ms=metadata.last_updated_ms,
        before=tuple(_name(entry.metadata_file) for entry in metadata.metadata_log),
    )


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _number(location: str) -> int:
    return IcebergSqlCatalog._parse_metadata_version(location)


_SUFFIX = ".metadata.json"


def newest_left(connection: IcebergConnection, table: TableInfo) -> str | None:
    """Finds the newest metadata file of this table where its catalog would put it, if the files of its head exist too.
    Raises `LakeUnavailable`."""
    with lake_errors(str(table.path), "look for what is left of"):
        folder = _folder(connection, table)
        if folder is None:
            return None
        io = PyArrowFileIO(dict(connection.options))
        names = [f.path for f in list_folder(io, folder) if f.path.endswith(_SUFFIX)]
        versions = [(m.last_updated_ms, m, name) for name in names if (m := _read_metadata(io, name)) is not None]
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
    """Returns the table's folder; None if only the catalog knows it, as a foreign REST catalog."""
    path = table.path
    try:
        root = connection.catalog.load_namespace_properties((path.database,)).get("location")
    except NoSuchNamespaceError:
        root = None
    warehouse = connection.options.get("warehouse")
    if not root and warehouse and connection.options.get("type") != "rest":
        root = f"{warehouse.rstrip('/')}/{path.database}"
    return f"{root.rstrip('/')}/{path.table}/metadata" if root else None


def _read_metadata(io: PyArrowFileIO, location: str) -> TableMetadata | None:
    """Reads metadata; None for an incomplete file, which never was the table's."""
    try:
        return load_metadata(io, location, io.properties)
    except (FileNotFoundError, ValueError, ValidationError):
        return None
