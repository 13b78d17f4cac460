# SPDX-License-Identifier: Apache-2.0
"""Allowed places of an Iceberg table's files, and storage that opens and deletes nothing elsewhere.

The catalog is trusted to name the table's metadata file; the location in that file is not trusted, unless it is the
folder above it, or the place where the catalog puts a table of this name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Properties

from lakeward.lake.allowedpaths import OFFSETS_OF_FLUSS, AllowedPaths, has_dots, parse_locations
from lakeward.lake.iceberg.meta.location import canonical
from lakeward.lake.iceberg.meta.tableproperties import ALLOWED_OPTION, with_allowed_properties
from lakeward.lake.metadatabounds import MetadataBounds


class OwnFileIO(FileIO):
    """Raises `LakePathRefused`."""

    def __init__(self, inner: FileIO, allowed: AllowedPaths) -> None:
        self.inner, self.allowed = inner, allowed

    @property
    def properties(self) -> Properties:  # type: ignore[override]
        """The current properties: credentials may be renewed."""
        return self.inner.properties

    def new_input(self, location: str) -> InputFile:
        return self.inner.new_input(self.allowed.check(location))

    def new_output(self, location: str) -> OutputFile:
        return self.inner.new_output(self.allowed.check(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.inner.delete(self.allowed.check(location if isinstance(location, str) else location.location))


def check_path(io: FileIO, path: str) -> str:
    """Checks a path before a cache is used for it. Raises `LakePathRefused`."""
    return io.allowed.check(path) if isinstance(io, OwnFileIO) else path


def open_manifest(io: FileIO, path: str) -> InputFile:
    """Reads a manifest or manifest list, up to the limit for its library. Raises `LakeMetadataTooLarge`,
    `ValueError`."""
    bounds = MetadataBounds.parse(io.properties)
    with io.new_input(path).open() as source:
        data = source.read(bounds.limit + 1)
    bounds.check_avro(path, data)
    return _ReadInput(path, data)


class _ReadInput(InputFile):
    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return BytesIO(self._data)


def offsets_storage(io: FileIO, path: str) -> FileIO:
    """Opens storage for an offsets file, which Fluss keeps outside the lake."""
    is_of_fluss = OFFSETS_OF_FLUSS.fullmatch(path) is not None and not has_dots(path)
    return io.inner if is_of_fluss and isinstance(io, OwnFileIO) else io


def allowed_paths(table: Table, catalog: Catalog, options: Mapping[str, str]) -> AllowedPaths:
    """Raises `LakePathRefused` if the table's location is elsewhere."""
    location = table.metadata.location.rstrip("/")
    own = pointed_paths(table.name(), table.metadata_location, options)
    if own.allows(location):
        return own
    default = default_location(catalog, table.name())
    if default is None or canonical(location) != canonical(default):
        own.check(location)
    return replace(own, location=location, more=(table.metadata_location.rpartition("/")[0], *own.more))


def pointed_paths(name: tuple[str, ...], metadata_location: str, options: Mapping[str, str]) -> AllowedPaths:
    """Returns the paths that are allowed by the place of a metadata file that the catalog names."""
    root = metadata_location.rpartition("/")[0].removesuffix("/metadata")
    return AllowedPaths(".".join(name), root, str(options.get("warehouse", "")), parse_locations(options))


def default_location(catalog: Catalog, name: tuple[str, ...]) -> str | None:
    """Returns the place where a catalog puts a table; None if unknown."""
    location = catalog.load_namespace_properties(name[:-1]).get("location")
    warehouse = str(catalog.properties.get("warehouse", "")).rstrip("/")
    root = str(location).rstrip("/") if location else warehouse and f"{warehouse}/{'.'.join(name[:-1])}"
    return f"{root}/{name[-1]}" if root else None


def delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
    """Deletes metadata files that the log no longer names after a commit, as PyIceberg does. Files elsewhere, or that
    cannot be deleted, stay."""
    if metadata.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return
    retained = {entry.metadata_file for entry in metadata.metadata_log}
    for entry in base.metadata_log:
        is_allowed = not isinstance(io, OwnFileIO) or io.allowed.allows(entry.metadata_file)
        if entry.metadata_file not in retained and is_allowed:
            with suppress(OSError):
                io.delete(entry.metadata_file)


_CODE = "impl"
"""Suffix of every property whose value PyIceberg imports."""

Value = TypeVar("Value")
Loaded = TypeVar("Loaded", bound=Table)


def open_catalog(name: str, options: Mapping[str, Any]) -> Catalog:
    """Opens a catalog of any kind but `sql`, which is ours. Raises as PyIceberg does."""
    catalog = load_catalog(name, **options)
    catalog.properties = {k: v for k, v in catalog.properties.items() if k in options or not names_code(k)}
    if isinstance(catalog, RestCatalog):
        for method in ("_response_to_table", "_response_to_staged_table"):
            setattr(catalog, method, checked_answers(catalog.properties, getattr(catalog, method)))
    else:
        _keep_storage(catalog)
    return catalog


def names_code(key: str) -> bool:
    return key.endswith((f".{_CODE}", f"-{_CODE}"))


def without_code(properties: Mapping[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in properties.items() if not names_code(key)}


def checked_answers(own: Properties, answer: Callable[..., Loaded]) -> Callable[..., Loaded]:
    """Uses the storage in the server's `config`, never in a table's properties."""

    def checked(identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Loaded:
        metadata = with_allowed_properties(table_response.metadata, own.get(ALLOWED_OPTION, ""))
        config = without_code(table_response.config)
        return answer(identifier_tuple, table_response.model_copy(update={"metadata": metadata, "config": config}))

    return checked


def _keep_storage(catalog: Any) -> None:
    """Storage checks of a catalog that reads and writes metadata files itself."""
    stage = getattr(catalog, "_update_and_stage_table", None)

    def load(properties: Properties = {}, location: str | None = None) -> FileIO:  # noqa: B006
        return load_file_io(catalog.properties, location)

    def stage_known(current_table: Table | None, *change: Any) -> StagedTable:
        if current_table is not None:
            properties = without_code(current_table.metadata.properties)
            current_table.metadata = current_table.metadata.model_copy(update={"properties": properties})
        staged: StagedTable = stage(current_table, *change)  # type: ignore[misc]
        return staged

    catalog._load_file_io, catalog._update_and_stage_table = load, stage_known
