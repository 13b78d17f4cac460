# SPDX-License-Identifier: Apache-2.0
"""PyIceberg's catalogs, opened so that only the operator's options choose storage and code.

PyIceberg opens a table's storage with the table's own properties on top of the catalog's, and imports what they name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Properties

from lakeward.lake.iceberg.meta.tableproperties import ALLOWED_OPTION, with_allowed_properties

_CODE = "impl"
"""How every name ends whose value PyIceberg imports."""

Value = TypeVar("Value")
Loaded = TypeVar("Loaded", bound=Table)


def open_catalog(name: str, options: Mapping[str, Any]) -> Catalog:
    """A catalog of any kind but `sql`, which is ours. Raises what PyIceberg does."""
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
    """The server says what storage a table has (its `config`), and no table does."""

    def checked(identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Loaded:
        metadata = with_allowed_properties(table_response.metadata, own.get(ALLOWED_OPTION, ""))
        config = without_code(table_response.config)
        return answer(identifier_tuple, table_response.model_copy(update={"metadata": metadata, "config": config}))

    return checked


def _keep_storage(catalog: Any) -> None:
    """Of a catalog that reads and writes metadata files itself."""
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
