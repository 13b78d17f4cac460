# SPDX-License-Identifier: Apache-2.0
"""Which pages may call: by Host, Origin and Content-Type."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from lakeward.errors import ForeignCaller, NotJson
from lakeward.protocol.routes import ICEBERG, LEASED_TYPE, OAUTH, TABLES
from lakeward.server.admission.callers import Callers

OPEN = Callers.of([], ["127.0.0.1", "lake.example"], has_tokens=False)
GUARDED = Callers.of([], ["0.0.0.0"], has_tokens=True)
CHOSEN = Callers.of(["Board.example", "lake.example:9050"], ["10.1.2.3"], has_tokens=True)


def ask(callers: Callers, method: str = "GET", **headers: str) -> None:
    callers.check(method, "/api/v1/tables", Headers({k.replace("_", "-"): v for k, v in headers.items()}))


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9050", "127.0.0.1:1", "[::1]:9050", "10.1.2.3", "lake.example"]
)
def test_its_own_names_and_addresses(host: str) -> None:
    ask(OPEN, host=host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9050", "localhost.evil.example", "", "127.0.0.1.evil.example"]
)
def test_a_foreign_name_is_refused_where_everybody_may_do_everything(host: str) -> None:
    with pytest.raises(ForeignCaller, match=r"server\.allowed-hosts"):
        ask(OPEN, host=host)
    ask(GUARDED, host=host)


def test_chosen_names() -> None:
    ask(CHOSEN, host="board.example:80")
    ask(CHOSEN, host="lake.example:9050")
    for foreign in ("lake.example:9051", "evil.example"):
        with pytest.raises(ForeignCaller):
            ask(CHOSEN, host=foreign)


@pytest.mark.parametrize("callers", [OPEN, GUARDED, CHOSEN])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "", "file://"])
def test_a_foreign_page_is_refused(callers: Callers, origin: str) -> None:
    with pytest.raises(ForeignCaller, match="Origin"):
        ask(callers, host="localhost:9050", origin=origin)


def test_its_own_page_and_a_chosen_one() -> None:
    ask(OPEN, host="localhost:9050", origin="http://localhost:9050")
    ask(GUARDED, host="lake.example", origin="https://lake.example")
    ask(CHOSEN, host="lake.example:9050", origin="https://board.example")


def test_leased_commits_come_by_their_type_to_the_catalog_alone() -> None:
    headers = Headers({"host": "localhost", "content-type": LEASED_TYPE})
    OPEN.check("POST", f"{ICEBERG}/v1/namespaces/d/tables/t", headers)
    for path in (OAUTH, TABLES):
        with pytest.raises(NotJson):
            OPEN.check("POST", path, headers)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_what_changes_something_comes_as_json(method: str) -> None:
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
    ):
        with pytest.raises(NotJson, match="application/json"):
            ask(OPEN, method, host="localhost", content_type=kind, lakeward_protocol="1.1")
    with pytest.raises(NotJson):
        ask(OPEN, method, host="localhost")
    ask(OPEN, method, host="localhost", content_type="Application/JSON; charset=utf-8")
    ask(OPEN, method, host="localhost", lakeward_protocol="1.1")
    ask(OPEN, "GET", host="localhost")
    ask(OPEN, "DELETE", host="localhost")


@pytest.mark.parametrize("callers", [OPEN, GUARDED, CHOSEN])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_a_picture_on_a_foreign_page_asks_for_nothing(callers: Callers, site: str) -> None:
    """Such a request has no Origin; `same-site` is another port of this machine."""
    for path in ("/api/v1/tables/db.t/sample", "/iceberg/v1/namespaces"):
        with pytest.raises(ForeignCaller, match="Sec-Fetch-Site"):
            callers.check("GET", path, Headers({"host": "lake.example:9050", "sec-fetch-site": site}))
    callers.check("GET", "/", Headers({"host": "lake.example:9050", "sec-fetch-site": site}))  # a link to the dashboard


def test_pages_that_may_call_still_may() -> None:
    for site, origin in (("same-origin", {}), ("none", {}), ("cross-site", {"origin": "https://board.example"})):
        ask(CHOSEN, host="lake.example:9050", sec_fetch_site=site, **origin)


def test_a_read_lease_is_taken_by_no_plain_call() -> None:
    """Older browsers say no `Sec-Fetch-Site`; what they cannot do is name a type or a header of ours."""
    path = "/api/v1/tables/db.t/read-plan"
    with pytest.raises(NotJson):
        OPEN.check("POST", path, Headers({"host": "localhost"}))
    OPEN.check("POST", path, Headers({"host": "localhost", "lakeward-protocol": "1.3"}))
