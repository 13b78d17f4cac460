# SPDX-License-Identifier: Apache-2.0
"""Union reads inside the server: the same planning and the same rows as a client's, without a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, cast

import pyarrow as pa

from lakeward.errors import LakeUnavailable
from lakeward.model import SideName, TableInfo
from lakeward.protocol.readplan import ReadPlan
from lakeward.read.arrow import ReadRequest, describe_freshness, read
from lakeward.read.result import ReadResult
from lakeward.server.query.celltext import row_texts
from lakeward.server.services import Services
from lakeward.spi import CoordinatorClient, HotPlugin, HotStore, LakeReader

MOST_SAMPLED = 200


class LocalPlugin(HotPlugin):
    """The server's own store and coordinator. It lives and ends with the server: nothing here is closed."""

    name = "local"
    options: Mapping[str, str] = {}

    def __init__(self, services: Services) -> None:
        self._services = services

    def store(self) -> HotStore:
        return self._services.store

    def coordinator(self) -> CoordinatorClient:
        return self._services.coordinator

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        raise LakeUnavailable(lake="local", what=str(table.path), reason="its lake is opened by the server itself")


def open_here(services: Services, request: ReadRequest) -> ReadResult:
    """Raises what is wrong with the request, and what does not answer. To be consumed or closed."""
    board = services.coordinator.board

    def open_lake(plan: ReadPlan) -> LakeReader | None:
        if plan.lake_format is None:
            return None
        with board.lock:
            storage = board.lake_of(board.find(plan.table.path, plan.side))
        return None if storage is None else storage.open_reader(plan.table)

    return read(LocalPlugin(services), request, open_lake)


def first_batches(result: ReadResult, rows: int) -> Iterator[pa.RecordBatch]:
    """Not more rows than that, and the lease is given back then."""
    with result, closing(cast("Any", iter(result))) as batches:
        left = rows
        for batch in batches:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


def sample(services: Services, request: ReadRequest, rows: int) -> dict[str, Any]:
    """Some rows, whichever come first, as texts."""
    result = open_here(services, request)
    schema, bound = result.schema, result.bound
    texts = [row for batch in first_batches(result, min(rows, MOST_SAMPLED)) for row in row_texts(batch)]
    columns = [{"name": f.name, "type": str(f.type), "number": is_number(f.type)} for f in schema]
    return {"columns": columns, "rows": texts, "words": describe_freshness(bound), "snapshot_id": bound.snapshot_id}


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
