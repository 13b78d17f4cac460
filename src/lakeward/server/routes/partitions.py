# SPDX-License-Identifier: Apache-2.0
"""A table's partitions: list, create, drop."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from lakeward.model import TablePath, partition_name, partition_values
from lakeward.protocol.auth import Role
from lakeward.protocol.routes import PARTITION, PARTITIONS
from lakeward.server.admission.auth import require
from lakeward.server.messages import answer
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["partitions"])
    store, may_read, may_write = (
        services.store,
        [require(services.tokens, Role.READ)],
        [require(services.tokens, Role.WRITE)],
    )

    @router.get(PARTITIONS, dependencies=may_read)
    def list_partitions(table: str) -> JSONResponse:
        """The partitions there are now."""
        return answer({"partitions": list(store.partitions(store.load_table(TablePath.parse(table))))})

    @router.put(PARTITION, dependencies=may_write, status_code=204)
    def create_partition(table: str, partition: str) -> Response:
        """Makes a partition. Safe to repeat."""
        store.create_partition(store.load_table(TablePath.parse(table)), partition_name(partition_values(partition)))
        return Response(status_code=204)

    @router.delete(PARTITION, dependencies=may_write, status_code=204)
    def drop_partition(table: str, partition: str) -> Response:
        """The hot rows go; the lake keeps its own."""
        store.drop_partition(store.load_table(TablePath.parse(table)), partition_name(partition_values(partition)))
        return Response(status_code=204)

    return router
