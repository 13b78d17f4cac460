# SPDX-License-Identifier: Apache-2.0
"""The Iceberg REST catalog under `/iceberg`: one URL for jobs, Spark, DuckDB, Trino and PyIceberg, over a PyIceberg
catalog.

Handlers run in threads; bodies and errors are in the form that Iceberg's REST specification gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from fastapi import APIRouter, Request, Response
from pyiceberg.catalog import Catalog

from lakeward.errors import LakewardError
from lakeward.lake.iceberg.connect.connection import OWN_CALL
from lakeward.model import TablePath
from lakeward.protocol.auth import Role, Token, TokenSet
from lakeward.protocol.routes import ICEBERG, OAUTH
from lakeward.server.admission.auth import secret_of
from lakeward.server.iceberg.answers import answer_error
from lakeward.server.iceberg.call import CatalogCall, CheckLake, Name
from lakeward.server.iceberg.follow import Following
from lakeward.server.iceberg.leased import LeasedCommits
from lakeward.server.iceberg.namespaces import NamespaceResource
from lakeward.server.iceberg.oauth import oauth_endpoint
from lakeward.server.iceberg.readonly import ReadOnlyTables
from lakeward.server.iceberg.tables import TableResource
from lakeward.server.iceberg.vending import CredentialVendor
from lakeward.server.lakethreads import LakeThreads

Handler = Callable[[CatalogCall], Response]
Route = tuple[str, str, Role, Handler]
"""Method, path, the role it needs, and what answers it."""


def iceberg_router(
    catalog: Catalog,
    auth: TokenSet,
    max_tables: int = 10_000,
    on_foreign: Callable[[TablePath], None] = lambda path: None,
    on_read: Callable[[TablePath], None] = lambda path: None,
    check_lake: CheckLake = lambda token, namespace: None,
    read_only: ReadOnlyTables | None = None,
    following: Following | None = None,
    leased: LeasedCommits | None = None,
) -> APIRouter:
    """The catalog's resources. Reading needs role read; creating and committing job; dropping, renaming and registering
    admin. A namespace takes new tables while it has fewer than `max_tables`. `on_foreign` is called for a table to
    which another engine added a snapshot, `on_read` for one that another engine loads. `check_lake` is called before a
    table or a namespace is created. `read_only`: serves the warehouses `live` and `cut:<name>`. `following`: the
    changes that other engines may make to Lakeward's tables, and how these follow. `leased`: takes commits of rounds
    together with their lease check and report."""
    vendor = CredentialVendor.of(catalog.properties)
    coordinator_id = None if leased is None else leased.coordinator.coordinator_id
    namespaces = NamespaceResource(catalog, check_lake, has_live=read_only is not None, coordinator_id=coordinator_id)
    tables = TableResource(
        catalog, max_tables, on_foreign, on_read, check_lake, following or Following(), vendor, leased
    )
    routes: list[Route] = [
        ("GET", "/config", Role.READ, namespaces.config),
        ("GET", "/namespaces", Role.READ, namespaces.list),
        ("POST", "/namespaces", Role.JOB, namespaces.create),
        ("GET", "/namespaces/{namespace}", Role.READ, namespaces.load),
        ("HEAD", "/namespaces/{namespace}", Role.READ, namespaces.exists),
        ("DELETE", "/namespaces/{namespace}", Role.ADMIN, namespaces.drop),
        ("POST", "/namespaces/{namespace}/properties", Role.ADMIN, namespaces.set_properties),
        ("GET", "/namespaces/{namespace}/tables", Role.READ, tables.list),
        ("POST", "/namespaces/{namespace}/tables", Role.JOB, tables.create),
        ("POST", "/namespaces/{namespace}/register", Role.ADMIN, tables.register),
        ("GET", "/namespaces/{namespace}/tables/{table}", Role.READ, tables.load),
        ("HEAD", "/namespaces/{namespace}/tables/{table}", Role.READ, tables.exists),
        ("GET", "/namespaces/{namespace}/tables/{table}/credentials", Role.READ, tables.credentials),
        ("POST", "/namespaces/{namespace}/tables/{table}", Role.JOB, tables.commit),
        ("DELETE", "/namespaces/{namespace}/tables/{table}", Role.ADMIN, tables.drop),
        ("POST", "/namespaces/{namespace}/tables/{table}/metrics", Role.READ, tables.take_metrics),
        ("POST", "/tables/rename", Role.ADMIN, tables.rename),
    ]
    if read_only is not None:
        routes += _read_only_routes(namespaces, tables, read_only)
    return _router(auth, routes)


def read_only_router(catalog: Catalog, auth: TokenSet, read_only: ReadOnlyTables) -> APIRouter:
    """The read-only warehouses alone, of a catalog that others write to."""
    namespaces = NamespaceResource(catalog, _refuse_lake, has_live=True)
    tables = TableResource(catalog, 0, lambda path: None, lambda path: None, _refuse_lake, Following())
    config: Route = ("GET", "/config", Role.READ, namespaces.config_read_only)
    return _router(auth, [config, *_read_only_routes(namespaces, tables, read_only)])


def _refuse_lake(token: Token, namespace: Name) -> None:
    raise token.refuse(f"namespace {'.'.join(namespace)}", "the catalog of the cluster's lake")


def _router(auth: TokenSet, routes: Iterable[Route]) -> APIRouter:
    router, threads = APIRouter(prefix=f"{ICEBERG}/v1", tags=["iceberg"]), LakeThreads()
    router.add_api_route(
        OAUTH.removeprefix(router.prefix), oauth_endpoint(auth), methods=["POST"], include_in_schema=False
    )
    for method, path, role, handler in routes:
        endpoint = partial(_serve, auth, threads, role, handler)
        name = f"iceberg-{method.lower()}-{path}"
        router.add_api_route(path, _named(endpoint), methods=[method], name=name, include_in_schema=False)
    return router


def _read_only_routes(namespaces: NamespaceResource, tables: TableResource, read_only: ReadOnlyTables) -> list[Route]:
    """Under the warehouse's name as prefix. Calls that would change something are answered with where to send them."""
    namespace = "/{warehouse}/namespaces/{namespace}"
    table = f"{namespace}/tables/{{table}}"
    refuse = read_only.refuse
    return [
        ("GET", "/{warehouse}/namespaces", Role.READ, namespaces.list),
        ("GET", namespace, Role.READ, namespaces.load),
        ("HEAD", namespace, Role.READ, namespaces.exists),
        ("GET", f"{namespace}/tables", Role.READ, tables.list),
        ("GET", table, Role.READ, read_only.load),
        ("HEAD", table, Role.READ, read_only.exists),
        ("GET", f"{table}/credentials", Role.READ, read_only.credentials),
        ("POST", f"{table}/metrics", Role.READ, tables.take_metrics),
        ("POST", "/{warehouse}/namespaces", Role.READ, refuse),
        ("DELETE", namespace, Role.READ, refuse),
        ("POST", f"{namespace}/properties", Role.READ, refuse),
        ("POST", f"{namespace}/tables", Role.READ, refuse),
        ("POST", f"{namespace}/register", Role.READ, refuse),
        ("POST", table, Role.READ, refuse),
        ("DELETE", table, Role.READ, refuse),
        ("POST", "/{warehouse}/tables/rename", Role.READ, refuse),
        ("POST", "/{warehouse}/transactions/commit", Role.READ, refuse),
    ]


def _named(endpoint: Callable[[Request], object]) -> Callable[[Request], object]:
    async def handle(request: Request) -> Response:
        return await endpoint(request)  # type: ignore[misc,no-any-return]

    return handle


async def _serve(auth: TokenSet, threads: LakeThreads, role: Role, handler: Handler, request: Request) -> Response:
    try:
        what = f"{request.method} {request.url.path}"
        token = auth.authorize(secret_of(request.headers.get("authorization")), role, what)
        body = await request.body()
    except LakewardError as error:
        return answer_error(error)
    try:
        return await threads.run(token.name, what, partial(_answer, token, handler, request, body))
    except LakewardError as error:
        return answer_error(error)


def _answer(token: Token, handler: Handler, request: Request, body: bytes) -> Response:
    try:
        call = CatalogCall(
            path=dict(request.path_params),
            query=dict(request.query_params),
            headers=request.headers,
            body=body,
            token=token,
            is_own=OWN_CALL in request.headers,
        )
        if "table" in call.path:
            request.state.table = ".".join(call.table)
            call.check_table(call.table)
        return handler(call)
    except Exception as error:  # noqa: BLE001 - every failure has an answer in the specification's form
        return answer_error(error)
