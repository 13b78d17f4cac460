# SPDX-License-Identifier: Apache-2.0
"""Tables of thousands of partitions, on a real server: each drop is one, and a write that is refused in the middle says
to the row what it stored.
"""

from __future__ import annotations

import re

import pytest

from lakeward.errors import InvalidRequest
from tests.kit.serverprocess import ServerProcess
from tests.server.conftest import StartServer

pytestmark = pytest.mark.soak

MOST, DROPS = 2_000, 7
COLUMNS = "p STRING NOT NULL, id BIGINT NOT NULL"


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(settings={"max.partition.num": str(MOST)})


def test_each_drop_of_a_table_with_thousands_of_partitions_is_one(server: ServerProcess) -> None:
    """One of seven answered 500 once, though it had dropped the table."""
    client = server.client()
    for number in range(DROPS):
        table = client.create_table(f"db.t{number}", COLUMNS, primary_key="p,id", partition_by="p")
        table.upsert([{"p": f"p{i}", "id": i} for i in range(MOST)])
        client.drop_table(table.path)
    assert client.list_tables() == []


def test_a_write_over_too_many_partitions_says_what_is_stored(server: ServerProcess) -> None:
    client = server.client()
    table = client.create_table("db.t", COLUMNS, primary_key="p,id", partition_by="p")
    with pytest.raises(InvalidRequest, match=r"max\.partition\.num") as refused:
        table.upsert([{"p": f"p{i % (2 * MOST)}", "id": i} for i in range(4 * MOST)])
    told = re.search(r"([0-9,]+) rows of this upsert to db\.t are stored, no others", str(refused.value))
    assert told is not None, str(refused.value)
    assert client.read("db.t").to_table().num_rows == int(told.group(1).replace(",", "")) > 0
