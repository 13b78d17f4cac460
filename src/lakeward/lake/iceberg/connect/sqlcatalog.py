# SPDX-License-Identifier: Apache-2.0
"""PyIceberg's SQL catalog without its repeated work: metadata files never change, so each is parsed once.

The stock catalog parses the metadata twice for each commit and deep-copies all snapshots: its cost grows with every
round.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import Identifier, Properties
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from lakeward.errors import LakeMetadataGone
from lakeward.lake.iceberg.connect.metadatafile import check_size, metadata_limit, parse_metadata, read_metadata
from lakeward.lake.iceberg.meta.location import metadata_folder, metadata_name, sync_files
from lakeward.lake.iceberg.meta.manifests import load_list, read_entries
from lakeward.lake.iceberg.meta.ownpaths import (
    OwnFileIO,
    allowed_paths,
    default_location,
    delete_old_metadata,
    pointed_paths,
)
from lakeward.lake.iceberg.meta.tableproperties import ALLOWED_OPTION, PATH_PROPERTIES, check_properties
from lakeward.lake.iceberg.meta.version import metadata_json, to_version_3
from lakeward.model import SystemClock, fault_point

_MARKS = sa.Table(
    "lakeward_catalogs",
    sa.MetaData(),
    sa.Column("catalog_name", sa.String(255), primary_key=True),
    sa.Column("mark", sa.String(8), nullable=False),
)


def load_mark(engine: sa.Engine, catalog_name: str) -> str | None:
    """Loads eight hexadecimal digits, chosen once for a catalog and stored in its database; None if the database is
    read-only."""
    query = sa.select(_MARKS.c.mark).where(_MARKS.c.catalog_name == catalog_name)
    try:
        with suppress(SQLAlchemyError):  # another process may create it at this moment
            _MARKS.create(engine, checkfirst=True)
        with suppress(IntegrityError), engine.begin() as connection:
            if connection.execute(query).scalar() is None:
                connection.execute(sa.insert(_MARKS).values(catalog_name=catalog_name, mark=uuid.uuid4().hex[:8]))
        with engine.begin() as connection:
            return str(connection.execute(query).scalar_one())
    except SQLAlchemyError:
        return None


_KEPT, _KEPT_BYTES = 256, 32 << 20
"""The most cached tables, and bytes of their JSON; each has every retained snapshot of its table."""


_ATTEMPTS = 8
"""A round's commit, an expiry and an ALTER may collide; each checks its own requirements again and continues."""


class IcebergSqlCatalog(SqlCatalog):
    def __init__(self, name: str, **properties: str) -> None:
        self._parsed: OrderedDict[str, TableMetadata] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._storages: dict[str, FileIO] = {}
        self._cache_lock = threading.Lock()
        super().__init__(name, **properties)

    @cached_property
    def mark(self) -> str | None:
        """The mark in the name of every metadata file that this catalog writes from its second version on."""
        return load_mark(self.engine, self.name)

    def _load_file_io(self, properties: Properties = {}, location: str | None = None) -> FileIO:  # noqa: B006
        """Opens storage with the catalog's own options, whatever a table's properties are. One per kind of storage: a
        client of an object store is expensive to create."""
        scheme = (location or "").partition(":")[0]
        with self._cache_lock:
            if scheme not in self._storages:
                self._storages[scheme] = load_file_io(self.properties, location)
            return self._storages[scheme]

    def create_table(self, identifier: str | Identifier, schema: Any, *where: Any, **more: Any) -> Table:
        self._check_properties(identifier, more.get("properties", {}))
        name = Catalog.identifier_to_tuple(identifier)
        location = more.get("location") or default_location(self, name)
        if location:
            self._check_places(name, location, more.get("properties", {}))
        return super().create_table(identifier, schema, *where, **more)

    def _create_staged_table(self, identifier: str | Identifier, schema: Any, *where: Any, **more: Any) -> StagedTable:
        self._check_properties(identifier, more.get("properties", {}))
        return super()._create_staged_table(identifier, schema, *where, **more)

    def _check_properties(self, identifier: str | Identifier, properties: Properties) -> None:
        name = ".".join(Catalog.identifier_to_tuple(identifier))
        check_properties(name, properties, self.properties.get(ALLOWED_OPTION, ""))

    def _check_places(self, name: tuple[str, ...], location: str, properties: Properties) -> None:
        """Creates a table. Refuses a location from which clients would not open files. Raises `LakePathRefused`."""
        allowed = pointed_paths(name, f"{location.rstrip('/')}/metadata/", self.properties)
        for key in PATH_PROPERTIES & properties.keys():
            allowed.check(properties[key])

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location, namespace, name = orm_table.metadata_location, orm_table.table_namespace, orm_table.table_name
        if not location or not namespace or not name:
            raise NoSuchTableError(f"the catalog's row of {namespace}.{name} is not whole")
        full_name = (*Catalog.identifier_to_tuple(namespace), name)
        pointed_paths(full_name, location, self.properties).check(location)
        try:
            metadata = self._metadata(location)
        except FileNotFoundError as error:
            raise LakeMetadataGone(table=f"{namespace}.{name}", file=location) from error
        io = self._load_file_io({}, location)
        return Table(full_name, metadata, location, io, self)

    def _metadata(self, location: str) -> TableMetadata:
        with self._cache_lock:
            metadata = self._parsed.get(location)
            if metadata is not None:
                self._parsed.move_to_end(location)
                return metadata
        data = read_metadata(self._load_file_io({}, location), location, metadata_limit(self.properties))
        parsed = parse_metadata(data)
        self._sizes[location] = len(data)
        self._keep(location, parsed)
        return parsed

    def _keep(self, location: str, metadata: TableMetadata, instead_of: str | None = None) -> None:
        with self._cache_lock:
            self._parsed.pop(instead_of or "", None)
            self._parsed[location] = metadata
            while len(self._parsed) > _KEPT or sum(self._sizes.get(p, 0) for p in self._parsed) > _KEPT_BYTES:
                self._parsed.popitem(last=False)
            self._sizes = {path: self._sizes.get(path, 0) for path in self._parsed}

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        for change in updates:
            if isinstance(change, SetPropertiesUpdate):
                self._check_properties(table.name(), change.updates)
        try:
            self.load_table(table.name())
        except NoSuchTableError:
            return super().commit_table(table, requirements, updates)
        for _ in range(_ATTEMPTS):
            response = self._try_commit(table.name(), requirements, updates)
            if response is not None:
                return response
        raise CommitFailedException(
            f"Table has been updated by others {_ATTEMPTS} times in a row: {'.'.join(table.name())}"
        )

    def _try_commit(
        self, name: tuple[str, ...], requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse | None:
        """Tries a commit; None if another commit came between: the requirements are then checked again on its
        result."""
        current = self.load_table(name)
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = _updated(current.metadata, updates, current.metadata_location)
        if metadata is current.metadata:
            return _response(metadata, current.metadata_location)
        version = self._parse_metadata_version(current.metadata_location) + 1
        allowed = allowed_paths(current, self, self.properties)
        folder = metadata_folder(metadata.location, metadata.properties)
        for change in updates:
            if isinstance(change, SetPropertiesUpdate):
                self._check_places(name, metadata.location, change.updates)
        if folder == metadata_folder(current.metadata.location, current.metadata.properties):
            allowed.check(folder)  # the caller, who may choose it, named another
        location = f"{folder}/{metadata_name(version, self.mark, metadata.table_uuid)}"
        io = self._load_file_io({}, location)
        self._write_metadata(metadata, io, location)
        sync_files([location])
        fault_point("catalog.before-swap", location=location)
        if not self.swap(name, current.metadata_location, location):
            with suppress(OSError):
                io.delete(location)  # no other call ever read it
            return None
        self._keep(location, metadata, instead_of=current.metadata_location)
        delete_old_metadata(OwnFileIO(io, allowed), current.metadata, metadata)
        return _response(metadata, location)

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        data = metadata_json(metadata).encode()
        check_size(metadata_path, len(data), metadata_limit(self.properties))
        with io.new_output(metadata_path).create() as out:
            out.write(data)
        self._sizes[metadata_path] = len(data)

    def pointers(self) -> dict[tuple[str, ...], str]:
        """Table -> the metadata file that this catalog names for it."""
        columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
        rows = select(*columns).where(IcebergTables.catalog_name == self.name)
        only_tables = self._iceberg_type_filter()
        with Session(self.engine) as session:
            stored = session.execute(rows if only_tables is None else rows.where(only_tables)).all()
        return {(*Catalog.identifier_to_tuple(space), name): location for space, name, location in stored if location}

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drops the table and deletes its files, data first. Raises `LakePathRefused` before any change if it names a
        file elsewhere."""
        table = self.load_table(identifier)
        io = OwnFileIO(table.io, allowed_paths(table, self, self.properties))
        victims = list(dict.fromkeys((*_files_of(table.metadata, io), table.metadata_location)))
        for path in victims:
            io.allowed.check(path)
        self.drop_table(identifier)
        for path in victims:
            with suppress(OSError):
                io.delete(path)

    def swap(self, name: tuple[str, ...], before: str, after: str) -> bool:
        """Commits: changes one row if it still has `before`."""
        statement = (
            update(IcebergTables)
            .where(
                IcebergTables.catalog_name == self.name,
                IcebergTables.table_namespace == Catalog.namespace_to_string(name[:-1]),
                IcebergTables.table_name == name[-1],
                IcebergTables.metadata_location == before,
            )
            .values(metadata_location=after, previous_metadata_location=before)
        )
        with Session(self.engine) as session:
            changed = bool(session.execute(statement).rowcount)  # type: ignore[attr-defined]
            if changed:
                session.commit()
        return changed


def _files_of(metadata: TableMetadata, io: FileIO) -> Iterator[str]:
    """Lists files so that a file comes before those that name it."""
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        with suppress(FileNotFoundError):
            manifests |= {m.manifest_path: m for m in load_list(io, snapshot.manifest_list)}
    for manifest in manifests.values():
        with suppress(FileNotFoundError):
            yield from (e.data_file.file_path for e in read_entries(io, manifest))
    yield from manifests
    yield from (s.manifest_list for s in metadata.snapshots)
    yield from (entry.metadata_file for entry in metadata.metadata_log)


def _updated(base: TableMetadata, updates: tuple[TableUpdate, ...], location: str) -> TableMetadata:
    """Applies updates as PyIceberg does, without its deep copy: every step creates a new object already."""
    context, metadata = _TableMetadataUpdateContext(), base
    for change in updates:
        _check_sequence(change, metadata)
        _check_unnamed(change, metadata)
        if isinstance(change, UpgradeFormatVersionUpdate) and change.format_version == 3:
            if metadata.format_version == 2:
                context.add_update(change)
                metadata = to_version_3(metadata)
            continue
        metadata = _apply_table_update(change, metadata, context)
    if not context.has_changes():
        return base
    metadata = _update_table_metadata_log(metadata, location, base.last_updated_ms)
    if metadata.last_updated_ms == base.last_updated_ms:
        metadata = metadata.model_copy(update={"last_updated_ms": max(SystemClock().now_ms(), base.last_updated_ms)})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)


def _check_unnamed(change: TableUpdate, metadata: TableMetadata) -> None:
    """Refuses to remove a snapshot that got a tag or branch after its removal was planned: PyIceberg would drop
    both."""
    if isinstance(change, RemoveSnapshotsUpdate):
        named = {ref.snapshot_id: name for name, ref in metadata.refs.items()}
        for snapshot_id in change.snapshot_ids:
            if snapshot_id in named:
                raise CommitFailedException(f"snapshot {snapshot_id} cannot go: {named[snapshot_id]} points to it")
            if metadata.snapshot_by_id(snapshot_id) is None:
                raise CommitFailedException(f"snapshot {snapshot_id} is gone already")


def _check_sequence(change: TableUpdate, metadata: TableMetadata) -> None:
    """Refuses a snapshot numbered before others were added as a lost race, not as a bad request: its writer reads again
    and retries."""
    last = getattr(metadata, "last_sequence_number", 0)
    if isinstance(change, AddSnapshotUpdate) and metadata.snapshots and (change.snapshot.sequence_number or 0) <= last:
        raise CommitFailedException(
            f"snapshot has sequence number {change.snapshot.sequence_number}, the table is at {last}"
        )
