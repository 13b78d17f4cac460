# SPDX-License-Identifier: Apache-2.0
"""The demo's load: clicks appended, orders upserted and deleted, and a record of what must come out."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeward.client import Client

CLICKS, ORDERS = "demo.clicks", "demo.orders"
PAGES = ("home", "search", "item", "cart", "pay")
TICK_S = 0.2
CLICKS_PER_TICK, ORDERS_PER_TICK, DELETES_PER_TICK = 400, 60, 6


class DemoLoad:
    """Two producers in threads, seeded. `clicks` counts acknowledged rows; `orders` is what the PK table must hold."""

    def __init__(self, client: Client, seed: int = 7) -> None:
        self.client, self.seed = client, seed
        self.clicks = 0
        self.changes = 0
        self.orders: dict[int, dict[str, Any]] = {}
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(run,), daemon=True) for run in (self._click, self._order)
        ]

    def create_tables(self, freshness: str) -> None:
        clicks = "user_id bigint not null, page string not null, at timestamp(3) not null, ms int"
        self.client.create_table(CLICKS, clicks, buckets=4, freshness=freshness, if_not_exists=True)
        orders = "id bigint not null, customer string, status string, total decimal(10, 2)"
        self.client.create_table(ORDERS, orders, primary_key="id", buckets=2, freshness=freshness, if_not_exists=True)
        self._go_on()

    def _go_on(self) -> None:
        """In a data folder of an earlier demo: its rows must come out, too."""
        self.clicks = self.client.read(CLICKS, columns=["user_id"]).to_table().num_rows
        self.orders = {row["id"]: row for row in self.client.read(ORDERS).to_table().to_pylist()}

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guard(self, run: Any) -> None:
        try:
            run(random.Random(self.seed))  # noqa: S311 - demo data
        except BaseException as error:  # noqa: BLE001 - shown by the demo
            self.failure = error

    def _click(self, rng: random.Random) -> None:
        table = self.client.table(CLICKS)
        while not self._stop.wait(TICK_S):
            now_ms = time.time_ns() // 1_000_000
            rows = [
                {"user_id": rng.randrange(5_000), "page": rng.choice(PAGES), "at": now_ms, "ms": rng.randrange(2_000)}
                for _ in range(CLICKS_PER_TICK)
            ]
            table.append(_typed(rows))
            self.clicks += len(rows)

    def _order(self, rng: random.Random) -> None:
        from decimal import Decimal

        table = self.client.table(ORDERS)
        while not self._stop.wait(TICK_S):
            rows = {}
            for _ in range(ORDERS_PER_TICK):
                number = rng.randrange(3_000)
                status = rng.choice(("new", "paid", "sent", "done"))
                total = Decimal(rng.randrange(100_000)) / 100
                rows[number] = {"id": number, "customer": f"c{number % 97}", "status": status, "total": total}
            table.upsert(list(rows.values()))
            self.orders |= rows
            self.changes += len(rows)
            deleted_ids = rng.sample(sorted(self.orders), min(DELETES_PER_TICK, len(self.orders)))
            table.delete([{"id": number} for number in deleted_ids])
            for number in deleted_ids:
                del self.orders[number]
            self.changes += len(deleted_ids)


def _typed(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    at = table.schema.get_field_index("at")
    return table.set_column(at, "at", table.column("at").cast(pa.timestamp("ms")))
