# SPDX-License-Identifier: Apache-2.0
"""What Spark reads of each type through Lakeward is what docs/readers.md says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakeward.spark
from lakeward.client import Client
from lakeward.model.schema import OFFSET
from lakeward.model.table import TablePath
from lakeward.model.typetable import TYPES, TypeRow
from tests.interop.enginetypes import DEPTHS, TypeTable, check_page, columns_of, expected_of, name_of, rows_of
from tests.spark.processes import Job, Server

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    made = Job(server, "threads", spark=False)
    yield made
    made.kill()


def make(client: Client, row: TypeRow) -> TypeTable:
    """`n` stands for the offset, which union reads do not show."""
    table = client.create_table(f"types.t_{name_of(row).lower()}", {"n": "BIGINT", **columns_of(row)}, freshness="1 h")
    table.append([{**values, "n": n} for n, values in enumerate(rows_of(row))])
    client.tier_now(table.path)
    return TypeTable(str(row.example), TablePath.parse(table.path), expected_of(row))


def test_the_page_says_what_spark_reads_through_lakeward(job: Job, client: Client, session: Any) -> None:
    def read(table: TypeTable) -> pa.Table:
        found = lakeward.spark.read(session, str(table.path), server=client.url).toArrow()
        return found.rename_columns([OFFSET if n == "n" else n for n in found.column_names]).select([*DEPTHS, OFFSET])

    check_page("Spark 4.3 through Lakeward", [make(client, row) for row in TYPES], read)
