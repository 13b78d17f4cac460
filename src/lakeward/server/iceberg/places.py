# SPDX-License-Identifier: Apache-2.0
"""Where the catalog may put files: the server writes metadata where a table says, so only an admin may say somewhere
outside the warehouse.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from pyiceberg.catalog import Catalog

from lakeward.errors import Forbidden, InvalidRequest
from lakeward.protocol.auth import Role
from lakeward.server.iceberg.call import CatalogCall, Name

_LONGEST = 1_000


def check_places(catalog: Catalog, call: CatalogCall, places: Iterable[str | None]) -> None:
    """Raises `Forbidden`, and `InvalidRequest` for what is no place: one without a root lies where the server happens
    to run."""
    stated_places = [place for place in places if place is not None]
    for place in stated_places:
        if len(place) > _LONGEST or not (place.startswith(("/", "file:/")) or "://" in place):
            reason = f"a URI or an absolute path of up to {_LONGEST} characters is expected"
            raise InvalidRequest(what=f"location {place[:100]!r}", reason=reason)
    root = str(catalog.properties.get("warehouse", "")).rstrip("/")
    outside = [p for p in stated_places if not _lies_in(root, p)]
    if outside and call.role is not Role.ADMIN:
        what = f"location {outside[0]} outside the warehouse"
        raise Forbidden(token_name=call.token_name, role=str(call.role), what=what, needed=str(Role.ADMIN))


def check_own_places(catalog: Catalog, call: CatalogCall, name: Name, places: Iterable[str | None], *own: str) -> None:
    """Checks that the locations which a token with limited tables names are below its namespace's, or in a place of
    `own`: others belong to other tenants. `name` is a namespace, or a table where the token does not cover all of its
    namespace. Raises `Forbidden`."""
    if not call.token.tables:
        return
    root, joined = str(catalog.properties.get("warehouse", "")).rstrip("/"), ("/".join(name), ".".join(name))
    roots = [root and f"{root}/{levels}" for levels in joined] + [place.rstrip("/") for place in own]
    for place in places:
        if place is not None and not any(place == r or _lies_in(r, place) for r in roots):
            raise call.token.refuse(f"location {place}", f"a place in {roots[0]}, or a token for all tables")


def _lies_in(root: str, place: str) -> bool:
    return bool(root) and place.startswith(f"{root}/") and "/../" not in f"{unquote(place)}/"
