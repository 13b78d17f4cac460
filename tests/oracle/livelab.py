# SPDX-License-Identifier: Apache-2.0
"""A play's stage of real processes: a server and two jobs that are killed. What was written is sent again until it is
acknowledged, each request under its own key."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import httpx
from pyiceberg.catalog import load_catalog

from lakeward.errors import LakewardError
from lakeward.protocol import routes
from lakeward.protocol.tables import AlterTable, TableAnswer
from lakeward_testing.oracle.lab import JOBS, SERVER, STEPS, OracleLab
from lakeward_testing.waiting import wait_until

SETTINGS = {"live.hold": "0 s", "live.keep": "60 s"}
SENT_AGAIN_S = 300.0


class LiveLab:
    """`restart` kills the server, or a job at a step of its work."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._lab = OracleLab(folder, "iceberg", SETTINGS)
        self._client = self._lab.connect()
        self._http = httpx.Client(base_url=self._lab.url, timeout=120)
        self._random, self._keys = Random(seed), itertools.count()
        self._paths: list[str] = []

    @property
    def url(self) -> str:
        return f"{self._lab.url}/iceberg"

    @property
    def faults(self) -> Mapping[str, int]:
        return self._lab.faults

    def close(self) -> None:
        self._http.close()
        self._client.close()
        self._lab.close()

    # ---- writes ----
    def create(self, path: str, columns: str, **options: Any) -> None:
        names = ("primary_key", "partition_by", "buckets")
        properties = {k: v for k, v in options.items() if k not in names}
        given = {k: v for k, v in options.items() if k in names}
        self._client.create_table(path, columns, properties=properties, freshness="2 s", **given)
        self._paths.append(path)

    def append(self, path: str, rows: list[dict[str, Any]]) -> None:
        self._send(path, "append", rows)

    def upsert(self, path: str, rows: list[dict[str, Any]]) -> None:
        self._send(path, "upsert", rows)

    def delete(self, path: str, keys: list[dict[str, Any]]) -> None:
        self._send(path, "delete", keys)

    def _send(self, path: str, op: str, rows: list[dict[str, Any]]) -> None:
        headers, url = {"Idempotency-Key": f"row-{next(self._keys)}"}, routes.TABLE_ROWS.format(table=path)

        def put() -> bool:
            answer = self._http.post(url, params={"op": op}, json=rows, headers=headers)
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
            if answer.status_code not in (409, 429, 503):
                assert answer.status_code == 200, answer.text
            return answer.status_code == 200

        wait_until(put, limit_s=SENT_AGAIN_S, what="an answer to rows", tolerate=(httpx.TransportError,))

    def alter(self, path: str, change: AlterTable) -> None:
        self._client.server.call(TableAnswer, "PATCH", routes.TABLE.format(table=path), change)

    # ---- work and faults ----
    def tier(self, path: str) -> None:
        """Or the beginning of it: a job may have been killed, and the play goes on meanwhile."""
        try:
            self._client.tier_now(path, limit_s=self._random.choice((2.0, 60.0)))
        except LakewardError as error:
            if not error.retryable:
                raise

    def compact(self, path: str) -> None:
        self._http.post(routes.MAINTAIN.format(table=path), json={})

    def expire(self) -> None:
        """The server does so by itself, each second."""

    def restart(self) -> None:
        target = self._random.choice((SERVER, *JOBS))
        if target != SERVER:
            self._lab.arm(target, self._random.choice(STEPS[target]), self._random.choice(("kill", "lose")), 0.0)
            return
        tables = self._load_all()
        before = [table.scan().to_arrow().num_rows for table in tables]
        self._lab.kill(SERVER)
        self._lab.wait_ready()
        assert [table.scan().to_arrow().num_rows for table in tables] == before, "files of answers outlive the server"

    def _load_all(self) -> list[Any]:
        catalog = load_catalog("live", type="rest", uri=self.url, warehouse="live")
        return [catalog.load_table(path) for path in self._paths]
