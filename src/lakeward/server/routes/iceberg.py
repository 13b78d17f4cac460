# SPDX-License-Identifier: Apache-2.0
"""`/iceberg`: the embedded Iceberg catalog, where the server keeps one."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from fastapi import APIRouter

from lakeward.errors import NotFound, TableLoading, TableNotFound
from lakeward.model import ColumnChanges, TableInfo, TablePath, side_table
from lakeward.protocol.auth import Token
from lakeward.protocol.tables import AlterTable
from lakeward.server.admission.auth import check_job_name
from lakeward.server.lakerights import check_lakes
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    catalog = services.lakes.embedded_catalog() if services.lakes is not None else None
    if catalog is None:
        return APIRouter()
    from lakeward.server.iceberg.catalog import iceberg_router
    from lakeward.server.iceberg.follow import Following
    from lakeward.server.iceberg.leased import LeasedCommits
    from lakeward.server.iceberg.readonly import ReadOnlyTables

    def note_read(path: TablePath) -> None:
        with suppress(NotFound, TableLoading):  # a table of somebody else in the same catalog, or one that still is
            services.consumers.note_read(services.store.load_table(path).table_id)

    def check_lake(token: Token, namespace: tuple[str, ...]) -> None:
        assert services.lakes is not None
        check_lakes(services, token, ".".join(namespace), services.lakes.embedded_names())

    def find_table(path: TablePath) -> TableInfo | None:
        assert services.lakes is not None
        kept = services.lakes.embedded_names()
        for table in [t for t in services.store.load_tables() if t.path.database == path.database]:
            for name, side in services.federation.sides.of(table).items():
                if side.enabled and name.lake in kept and side_table(table, name).path == path:
                    return side_table(table, name)
        return None

    def alter_table(path: TablePath, changes: ColumnChanges) -> bool:
        try:
            services.store.load_table(path)
        except TableNotFound:
            return False
        services.federation.alter(path, AlterTable.of_columns(changes))
        return True

    return iceberg_router(
        catalog,
        services.tokens,
        services.quota.max_tables,
        services.coordinator.refresh_figures,
        note_read,
        check_lake,
        None if services.live is None else ReadOnlyTables(catalog, services.live, services.coordinator.cuts.load_cut),
        Following(find_table, alter_table),
        LeasedCommits(services.coordinator, partial(check_job_name, is_bound=services.bound_jobs)),
    )
