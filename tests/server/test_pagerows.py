# SPDX-License-Identifier: Apache-2.0
"""Samples, SQL and the log of the pages, by what a token may see."""

from __future__ import annotations

from typing import Any

import httpx

from tests.server.conftest import StartServer

TOKENS = "boss:admin:b,rea:read:r:shop.*"


def test_pages_show_what_the_token_may_see(start_server: StartServer) -> None:
    server = start_server(settings={"server.tokens": TOKENS})
    client = server.client(token="b")
    for name in ("shop.orders", "crm.people"):
        client.create_table(name, "id bigint not null, note string", primary_key="id").upsert([{"id": 1, "note": "x"}])
    with httpx.Client(base_url=server.url, headers={"Authorization": "Bearer r"}, timeout=120) as door:

        def ask(path: str, **body: Any) -> tuple[int, Any]:
            answer = door.post(path, json=body) if body else door.get(path)
            return answer.status_code, answer.json()

        code, answer = ask("/api/v1/sql", query="SELECT count(*) AS n, max(note) FROM shop.orders")
        assert (code, answer["rows"], answer["cut"]) == (200, [["1", "x"]], False)
        assert "complete up to" in answer["notes"][0]
        assert ask("/api/v1/tables/shop.orders/sample?mode=hot")[1]["rows"] == [["1", "x"]]
        for refused in (
            ask("/api/v1/sql", query="SELECT * FROM shop.orders, crm.people"),
            ask("/api/v1/sql", query="SELECT (SELECT note FROM crm.people)"),
            ask("/api/v1/tables/crm.people/sample"),
            ask("/api/v1/tables/crm.people/hot"),
            ask("/api/v1/tables/shop.other/define", columns="id bigint"),
            ask("/api/v1/log"),
        ):
            assert (refused[0], refused[1]["code"]) == (403, "forbidden")
        assert [t["path"] for t in ask("/api/v1/maintenance")[1]["tables"]] == ["shop.orders"]
        for query in ("SELECT * FROM '/etc/passwd'", "SELECT 1; DROP TABLE shop.orders", "DELETE FROM shop.orders"):
            assert ask("/api/v1/sql", query=query)[0] == 400
        assert ask("/api/v1/sql", query="SELECT 1", rows=10**6)[0] == 400
        assert ask("/api/v1/sql", query="SELECT '" + "x" * 20_000 + "'")[0] == 400
        assert ask("/api/v1/tables/shop.orders/sample?limit=100000")[0] == 400
        assert ask("/api/v1/tables/shop.orders/sample?as_of=tomorrow")[0] == 400
