# SPDX-License-Identifier: Apache-2.0
"""What Spark reads of each type through Lakeward is what docs/readers.md says."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pytest

import lakeward.spark
from lakeward.client import Client
from lakeward.model import OFFSET, TablePath, TypeRow
from tests.interop.enginetypes import (
    DEPTHS,
    PARTS,
    TypeTable,
    check_page,
    columns_of,
    expected_of,
    name_of,
    read_page,
    rows_of,
)
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


ENGINE = "Spark 4.3 through Lakeward"


def make(client: Client, name: str, types: Sequence[TypeRow]) -> str:
    """A table with every depth of these types; `n` stands for the offset, which union reads do not show."""
    columns = {f"{name_of(t)}_{depth}": sql for t in types for depth, sql in columns_of(t).items()}
    table = client.create_table(f"types.{name}", {"n": "BIGINT", **columns}, freshness="1 h")
    rows = zip_longest(*([{f"{name_of(t)}_{d}": v for d, v in r.items()} for r in rows_of(t)] for t in types))
    table.append([{"n": n, **ChainMap(*(part or {} for part in parts))} for n, parts in enumerate(rows)])
    client.tier_now(table.path)
    return table.path


def test_the_page_says_what_spark_reads_through_lakeward(job: Job, client: Client, session: Any) -> None:
    """Types that Spark reads share a table, one query instead of dozens; each of the others has its own."""
    page, types = read_page(), {str(t.example): t for t in PARTS}
    together = [name for name in types if page[name][ENGINE] == "yes"]
    shared = make(client, "together", [types[name] for name in together])
    paths = {n: shared if n in together else make(client, f"t_{name_of(t).lower()}", [t]) for n, t in types.items()}

    @cache
    def rows(path: str) -> pa.Table:
        return lakeward.spark.read(session, path, server=client.url).toArrow().sort_by("n")

    def read(table: TypeTable) -> pa.Table:
        name = name_of(types[table.name])
        found = rows(str(table.path)).select([*(f"{name}_{depth}" for depth in DEPTHS), "n"])
        return found.rename_columns([*DEPTHS, OFFSET]).slice(length=table.rows.num_rows)

    check_page(ENGINE, [TypeTable(n, TablePath.parse(paths[n]), expected_of(t)) for n, t in types.items()], read)
