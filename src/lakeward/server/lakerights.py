# SPDX-License-Identifier: Apache-2.0
"""Which lakes a token that is good for some tables only may put them into: those that are open to their database."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

from lakeward.config.tables import lakes_of, sides_named
from lakeward.errors import Forbidden
from lakeward.model import LAKES_PROPERTY, TablePath, changelog_side
from lakeward.protocol.auth import Token
from lakeward.protocol.operate import AdoptTable
from lakeward.server.services import Services

_PLACE = re.compile(r"^\s*[/\\~]|[A-Za-z][A-Za-z0-9+.-]*:/|\.\.")
"""A path with a root, a URI, or one that leads upwards."""

_PLACE_NAME = re.compile(r"(path|location|warehouse|directory|dir)s?$")


def seen_lakes(services: Services, token: Token) -> Container[str]:
    """The lakes that a token may know of: those that databases of its own may have, and those its tables are in."""
    coordinator = services.coordinator
    configured_lakes = coordinator.board.options.configured
    if not token.tables:
        return configured_lakes
    token_databases = {pattern.partition(".")[0] for pattern in token.tables}
    token_databases |= {listed.name for listed in coordinator.databases.listed() if token.may_see(listed.name)}
    with coordinator.board.lock:
        used = {side.options.lake for side in coordinator.board.sides() if token.may_use(side.info.path)}
    return used | {
        lake for lake in configured_lakes if any(coordinator.databases.may_have(name, lake) for name in token_databases)
    }


def check_new_table(services: Services, token: Token, path: TablePath, properties: Mapping[str, str]) -> None:
    """Raises `Forbidden`."""
    check_places(token, path, properties)
    check_lakes(services, token, path.database, services.federation.sides.lakes_of_new(path.database, properties))


def check_adopted(services: Services, token: Token, path: TablePath, request: AdoptTable) -> None:
    """Raises `Forbidden`."""
    if request.foreign:
        named = {} if request.lake is None else {LAKES_PROPERTY: request.lake}
        check_new_table(services, token, path, named)
    elif request.descriptor is not None:
        check_new_table(services, token, path, request.descriptor.properties)


def check_altered(services: Services, token: Token, path: TablePath, changes: Mapping[str, str | None]) -> None:
    """Lakes that the table has already may be named again. Raises `Forbidden`, `TableNotFound`."""
    if not token.tables:
        return
    said = {key: value for key, value in changes.items() if value is not None}
    check_places(token, path, said)
    changelog, has = changelog_side(said), services.store.load_table(path).descriptor.properties
    named = [*lakes_of(said), *([changelog.lake] if changelog is not None else [])]
    check_lakes(services, token, path.database, set(named) - {side.lake for side in sides_named(has)})


def check_places(token: Token, path: TablePath, properties: Mapping[str, str]) -> None:
    """Where files of a lake table lie is not for one tenant to say: another's may lie there, and server and jobs write
    and delete with rights of their own. Raises `Forbidden`."""
    for key, value in properties.items() if token.tables else ():
        if not key.startswith("table.") and (_PLACE.search(value) or (_PLACE_NAME.search(key) and "/" in value)):
            raise token.refuse(f"{key}, a place for files of {path},", "a token for all tables")


def check_lakes(services: Services, token: Token, database: str, lakes: Iterable[str]) -> None:
    """Raises `Forbidden`."""
    for lake in sorted(set(lakes)) if token.tables else ():
        if not services.coordinator.databases.may_have(database, lake):
            raise Forbidden(
                token_name=token.name,
                role=str(token.role),
                what=f"lake {lake} for tables of {database}",
                needed=f"a token for all tables, or {database} among the databases that [lakes.{lake}] names",
            )
