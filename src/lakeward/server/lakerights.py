# SPDX-License-Identifier: Apache-2.0
"""Which lakes a token that is good for some tables only may put them into: those that are open to their database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakeward.config.tables import lakes_of, sides_named
from lakeward.errors import Forbidden
from lakeward.model.side import LAKES_PROPERTY, changelog_side
from lakeward.model.table import TablePath
from lakeward.protocol.auth import Token
from lakeward.protocol.operate import AdoptTable
from lakeward.server.services import Services


def check_new_table(services: Services, token: Token, path: TablePath, properties: Mapping[str, str]) -> None:
    """Raises `Forbidden`."""
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
    changelog, has = changelog_side(said), services.store.load_table(path).descriptor.properties
    named = [*lakes_of(said), *([changelog.lake] if changelog is not None else [])]
    check_lakes(services, token, path.database, set(named) - {side.lake for side in sides_named(has)})


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
