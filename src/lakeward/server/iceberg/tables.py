# SPDX-License-Identifier: Apache-2.0
"""Tables of the Iceberg catalog: list, load, create, register, commit, drop, rename."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import Response
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)

from lakeward.errors import InvalidRequest, QuotaExceeded
from lakeward.lake.iceberg.connect.metadatafile import load_metadata
from lakeward.lake.iceberg.meta.ownpaths import pointed_paths
from lakeward.lake.iceberg.meta.tableproperties import (
    ALLOWED_OPTION,
    PATH_PROPERTIES,
    check_properties,
    with_allowed_properties,
)
from lakeward.model import TablePath
from lakeward.protocol.codec import encode
from lakeward.protocol.heartbeat import LEASED
from lakeward.server.iceberg.answers import answer, answer_table, done
from lakeward.server.iceberg.call import CatalogCall, CheckLake, Name, check_name, identifier_of
from lakeward.server.iceberg.follow import Following
from lakeward.server.iceberg.leased import LeasedCommits
from lakeward.server.iceberg.places import check_own_places, check_places
from lakeward.server.iceberg.vending import CredentialVendor, answer_vended
from lakeward.spi import TABLE_ID_KEY


class TableResource:
    def __init__(
        self,
        catalog: Catalog,
        max_tables: int,
        on_foreign: Callable[[TablePath], None],
        on_read: Callable[[TablePath], None],
        check_lake: CheckLake,
        following: Following,
        vendor: CredentialVendor | None = None,
        leased: LeasedCommits | None = None,
    ) -> None:
        self._check_lake, self._following, self._vendor, self._leased = check_lake, following, vendor, leased
        self._allowed = catalog.properties.get(ALLOWED_OPTION, "")
        self._catalog, self._max_tables, self._on_foreign, self._on_read = catalog, max_tables, on_foreign, on_read

    def list(self, call: CatalogCall) -> Response:
        tables = [t for t in sorted(self._catalog.list_tables(call.namespace)) if call.token.may_use(".".join(t))]
        return answer({"identifiers": [{"namespace": list(t[:-1]), "name": t[-1]} for t in tables]})

    def load(self, call: CatalogCall) -> Response:
        table = self._catalog.load_table(call.table)
        if not call.is_own and len(call.table) == 2:
            self._on_read(TablePath(*call.table))
        return self._answer_loaded(call, call.table, table.metadata_location, table.metadata)

    def credentials(self, call: CatalogCall) -> Response:
        """New ones for a client whose own are about to end."""
        metadata = self._catalog.load_table(call.table).metadata
        vended = None if self._vendor is None else self._vendor.renew(call, metadata, writes=True)
        return answer({"storage-credentials": [] if vended is None else [vended.to_json()]})

    def exists(self, call: CatalogCall) -> Response:
        self._catalog.load_table(call.table)
        return done()

    def create(self, call: CatalogCall) -> Response:
        body = call.json()
        for optional in ("location", "partition-spec", "write-order"):
            body.setdefault(optional, None)
        request = call.parsed(CreateTableRequest, {**body, "properties": body.get("properties") or {}})
        name = (*call.namespace, check_name("table", request.name))
        call.check_table(name)
        self._check_properties(name, request.properties)
        self._check_room(call)
        self._check_lake(call.token, name[:-1])
        stated_paths = _paths(request.properties)
        check_places(self._catalog, call, [request.location or self._default_place(name), *stated_paths])
        self._check_own(call, name, [request.location, *stated_paths])
        options: dict[str, Any] = {
            "schema": request.table_schema,
            "location": request.location,
            "partition_spec": request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            "sort_order": request.write_order or UNSORTED_SORT_ORDER,
            "properties": request.properties,
        }
        if not request.stage_create:
            table = self._catalog.create_table(name, **options)
            return self._answer_loaded(call, name, table.metadata_location, table.metadata)
        if not isinstance(self._catalog, MetastoreCatalog):
            raise NotImplementedError("this catalog cannot stage a table")
        return self._answer_loaded(call, name, None, self._catalog._create_staged_table(name, **options).metadata)

    def register(self, call: CatalogCall) -> Response:
        body = call.json()
        name = (*call.namespace, check_name("table", body.get("name")))
        call.check_table(name)
        location = body.get("metadata-location")
        if not isinstance(location, str) or body.get("overwrite"):
            raise InvalidRequest(what="register", reason="metadata-location is a text, and overwrite is not supported")
        self._check_lake(call.token, name[:-1])
        self._check_own(call, name, [location])
        pointed_paths(name, location, self._catalog.properties).check(location)
        try:
            io = load_file_io(dict(self._catalog.properties), location)
            metadata = load_metadata(io, location, self._catalog.properties)
        except (OSError, ValueError) as error:
            raise InvalidRequest(
                what=f"metadata-location {location}", reason=f"it cannot be read: {type(error).__name__}"
            ) from error
        self._check_properties(name, metadata.properties)
        lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
        self._check_own(call, name, [metadata.location, *_paths(metadata.properties), *lists])
        self._check_room(call)
        table = self._catalog.register_table(name, location)
        return self._answer_loaded(call, name, table.metadata_location, table.metadata)

    def commit(self, call: CatalogCall) -> Response:
        body = call.json()
        name, carried = call.table, body.pop(LEASED, None)
        body["identifier"] = {"namespace": list(name[:-1]), "name": name[-1]}
        request = call.parsed(CommitTableRequest, body)
        leased = None
        if carried is not None and self._leased is None:
            raise InvalidRequest(what="leased commit", reason="this catalog is of no coordinator, and checks no leases")
        if carried is not None and self._leased is not None:
            leased = self._leased.read(carried, call.token, request.updates)
        for update in request.updates:
            if isinstance(update, SetPropertiesUpdate):
                self._check_properties(name, update.updates)
        check_places(self._catalog, call, [p for u in request.updates for p in _places(u)])
        table = self._load_or_staged(call, request)
        stated_paths = [p for u in request.updates for p in (*_places(u), *_files(u))]
        self._check_own(call, name, stated_paths, *_own_places(table))
        updates = tuple(_fitting(u, table.metadata) for u in request.updates)
        is_staged = not table.metadata_location
        if not call.is_own and updates and not is_staged:
            for requirement in request.requirements:
                requirement.validate(table.metadata)
            if not self._following.follow(name, call.token, table.metadata, updates):
                table = self._catalog.load_table(name)  # the table itself changed it
                return self._answer(table.metadata_location, table.metadata)
        if leased is not None and self._leased is not None:
            landed = self._leased.commit(self._catalog, table, request.requirements, updates, leased)
            return answer({LEASED: encode(landed)})
        response = self._catalog.commit_table(table, request.requirements, updates)
        if len(name) == 2 and any(map(_is_foreign, updates)):
            self._on_foreign(TablePath(*name))
        return self._answer(response.metadata_location, response.metadata)

    def _check_properties(self, name: Name, properties: Mapping[str, str]) -> None:
        """Raises `InvalidTable`."""
        check_properties(".".join(name), properties, self._allowed)

    def _answer_loaded(self, call: CatalogCall, name: Name, location: str | None, metadata: TableMetadata) -> Response:
        vended = None if self._vendor is None else self._vendor.find(call, metadata, writes=True)
        return answer_vended(call, name, (location, with_allowed_properties(metadata, self._allowed)), vended)

    def _answer(self, location: str | None, metadata: TableMetadata) -> Response:
        """Without properties that name code or storage: those who load the table are to have options of their own."""
        return answer_table(location, with_allowed_properties(metadata, self._allowed))

    def _check_own(self, call: CatalogCall, name: Name, places: Iterable[str | None], *own: str) -> None:
        """Raises `Forbidden`."""
        if not call.token.tables:
            return
        location = self._catalog.load_namespace_properties(name[:-1]).get("location")
        within = name[:-1] if call.has_all_of(name[:-1]) else name
        below = location if location is None or within == name[:-1] else f"{location}/{name[-1]}"
        check_own_places(self._catalog, call, within, places, *(str(place) for place in (*own, below) if place))

    def _check_room(self, call: CatalogCall) -> None:
        """Raises `QuotaExceeded`."""
        used = len(self._catalog.list_tables(call.namespace))
        if used >= self._max_tables:
            what = f"tables in {'.'.join(call.namespace)}"
            raise QuotaExceeded(token_name=call.token_name, what=what, used=used, limit=self._max_tables)

    def _load_or_staged(self, call: CatalogCall, request: CommitTableRequest) -> Table:
        """A table to commit to. With `assert-create` it is not there yet, and only its name is used."""
        name = call.table
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            if not any(isinstance(r, AssertCreate) for r in request.requirements) or not isinstance(
                self._catalog, MetastoreCatalog
            ):
                raise
            self._check_room(call)
            self._check_lake(call.token, name[:-1])
            return Table(
                name, MetastoreCatalog._empty_table_metadata(), "", self._catalog._load_file_io(), self._catalog
            )

    def drop(self, call: CatalogCall) -> Response:
        """Files stay, unless the client asks for a purge."""
        if call.query.get("purgeRequested", "false").lower() == "true":
            self._catalog.purge_table(call.table)
        else:
            self._catalog.drop_table(call.table)
        return done()

    def rename(self, call: CatalogCall) -> Response:
        body = call.json()
        source = identifier_of(body.get("source"), "source")
        destination = identifier_of(body.get("destination"), "destination")
        call.check_table(source)
        call.check_table(destination)
        self._check_lake(call.token, destination[:-1])
        self._following.check_rename(source)
        self._catalog.rename_table(source, destination)
        return done()

    def take_metrics(self, call: CatalogCall) -> Response:
        """Engines report how a scan or commit went; nothing is kept of it."""
        return done()

    def _default_place(self, name: tuple[str, ...]) -> str:
        """Where the catalog puts a table that names no place: below its namespace's location, if that has one."""
        location = self._catalog.load_namespace_properties(name[:-1]).get("location")
        root = location or self._catalog.properties.get("warehouse", "")
        return f"{str(root).rstrip('/')}/{name[-1]}"


def _is_foreign(update: TableUpdate) -> bool:
    """A snapshot without our keys."""
    if not isinstance(update, AddSnapshotUpdate):
        return False
    summary = update.snapshot.summary
    return summary is None or TABLE_ID_KEY not in summary.additional_properties


def _places(update: TableUpdate) -> list[str]:
    if isinstance(update, SetLocationUpdate):
        return [update.location]
    return _paths(update.updates) if isinstance(update, SetPropertiesUpdate) else []


def _own_places(table: Table) -> list[str]:
    """None of one that is still to be made."""
    return [table.metadata.location, *_paths(table.metadata.properties)] if table.metadata_location else []


def _files(update: TableUpdate) -> list[str]:
    """Files that it brings in: what they name is read, and deleted with the table."""
    if isinstance(update, AddSnapshotUpdate):
        return [update.snapshot.manifest_list]
    if isinstance(update, SetStatisticsUpdate):
        return [update.statistics.statistics_path]
    return []


def _paths(properties: dict[str, str]) -> list[str]:
    return [properties[k] for k in sorted(PATH_PROPERTIES & properties.keys())]


def _fitting(update: TableUpdate, metadata: TableMetadata) -> TableUpdate:
    """Removing a property that is not there is no error to Iceberg; it is one to PyIceberg."""
    if isinstance(update, RemovePropertiesUpdate):
        return RemovePropertiesUpdate(removals=[k for k in update.removals if k in metadata.properties])
    return update
