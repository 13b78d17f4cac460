# SPDX-License-Identifier: Apache-2.0
"""Where the catalog may put files: the server writes metadata where a table says, so only an admin may say somewhere
outside the warehouse.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from pyiceberg.catalog import Catalog

from lakeward.errors import Forbidden
from lakeward.protocol.auth import Role
from lakeward.server.iceberg.call import CatalogCall


def check_places(catalog: Catalog, call: CatalogCall, places: Iterable[str | None]) -> None:
    """Raises `Forbidden`."""
    root = str(catalog.properties.get("warehouse", "")).rstrip("/")
    outside = [p for p in places if p is not None and not _lies_in(root, p)]
    if outside and call.role is not Role.ADMIN:
        what = f"location {outside[0]} outside the warehouse"
        raise Forbidden(token_name=call.token_name, role=str(call.role), what=what, needed=str(Role.ADMIN))


def _lies_in(root: str, place: str) -> bool:
    return bool(root) and place.startswith(f"{root}/") and "/../" not in f"{unquote(place)}/"
