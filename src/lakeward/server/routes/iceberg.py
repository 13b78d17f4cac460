# SPDX-License-Identifier: Apache-2.0
"""`/iceberg`: the embedded Iceberg catalog, where the server keeps one."""

from __future__ import annotations

from fastapi import APIRouter

from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    catalog = services.lakes.embedded_catalog() if services.lakes is not None else None
    if catalog is None:
        return APIRouter()
    from lakeward.server.iceberg.catalog import iceberg_router

    return iceberg_router(catalog, services.tokens, services.max_tables, services.coordinator.refresh_figures)
