# SPDX-License-Identifier: Apache-2.0
"""A hundred changes of columns in a row on a table with a million rows, while a producer writes with an old schema."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakeward.client import Client
from lakeward.protocol.routes import TABLE_STATUS, TABLES
from tests.spark.processes import Job, Server, tier_now

pytestmark = pytest.mark.soak

NAME, ROWS, CHANGES = "shop.goods", 1_000_000, 100


class Producer(threading.Thread):
    """Writes with the schema that it began with; its errors are kept."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.error: Exception | None = None
        self.written = 0
        self._url, self._end = url, threading.Event()

    def run(self) -> None:
        from lakeward import connect

        with connect(self._url) as client:
            table = client.table(NAME)
            while not self._end.is_set():
                try:
                    table.upsert([{"id": ROWS + self.written, "name": f"late {self.written}", "n": 1}])
                except Exception as error:  # noqa: BLE001 - the test shows whichever it is
                    self.error = error
                    return
                self.written += 1

    def stop(self) -> None:
        self._end.set()
        self.join(60)


def change(client: Client, number: int) -> None:
    match number % 5:
        case 0:
            client.alter_table(NAME, add_columns=f"c{number} INT", after={f"c{number}": "id"})
        case 1:
            client.alter_table(NAME, rename={f"c{number - 1}": f"d{number}"})
        case 2:
            client.alter_table(NAME, widen={f"d{number - 1}": "BIGINT"})
        case 3:
            client.alter_table(NAME, comments={f"d{number - 2}": f"change {number}"}, after={f"d{number - 2}": ""})
        case _:
            client.alter_table(NAME, drop=f"d{number - 3}")


@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_a_hundred_changes_while_a_producer_writes(tmp_path: Path, format: str) -> None:
    server = Server(tmp_path / "server", {"datalake.format": format})
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        table = client.create_table(NAME, "id BIGINT NOT NULL, name STRING, n INT", primary_key="id", freshness="2 s")
        ids = np.arange(ROWS)
        for part in np.array_split(ids, 20):
            table.upsert(pa.table({"id": part, "name": [f"row {i}" for i in part], "n": (part % 7).astype(np.int32)}))
        tier_now(client, table)
        producer = Producer(server.url)
        producer.start()
        lags, began = list[float](), time.monotonic()
        for number in range(CHANGES):
            change(client, number)
            lags.append(client.server.ask("GET", TABLE_STATUS.format(table=NAME))["lag_ms"] / 1000)
        took_s = time.monotonic() - began
        producer.stop()
        print(f"{format}: {CHANGES} changes in {took_s:.1f} s, {producer.written} puts beside them, freshness 2 s")
        print(f"rows waited {sorted(lags)[CHANGES // 2]:.1f} s in the median, {max(lags):.1f} s at the most")
        assert producer.error is None
        assert producer.written > 0
        tier_now(client, client.table(NAME))
        (shown,) = client.server.ask("GET", TABLES)["tables"]
        assert [c["name"] for c in shown["descriptor"]["schema"]["columns"]] == ["id", "name", "n"]
        assert "failed" not in job.text().lower(), job.text()[-2000:]
        for mode in ("union", "lake"):
            rows = client.read(NAME, mode=mode).to_table().sort_by("id")
            assert rows.column("id").to_pylist() == list(range(ROWS + producer.written))
            assert rows.column("name").null_count == rows.column("n").null_count == 0
    job.kill()
    server.kill()
