# SPDX-License-Identifier: Apache-2.0
"""Configuration and namespaces of the Iceberg catalog."""

from __future__ import annotations

from fastapi import Response
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from lakeward.errors import InvalidRequest
from lakeward.lake.iceberg.connect.connection import COORDINATOR_ID
from lakeward.server.iceberg.answers import answer, done
from lakeward.server.iceberg.call import SEPARATOR, CatalogCall, CheckLake, check_namespace
from lakeward.server.iceberg.places import check_own_places, check_places
from lakeward.server.iceberg.readonly import ReadOnlyName, answer_config
from lakeward.server.iceberg.vending import public_storage

_PLACES = ("location", "uri")
"""Properties that say where tables of a namespace lie."""

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
)


class NamespaceResource:
    def __init__(
        self, catalog: Catalog, check_lake: CheckLake, *, has_live: bool = False, coordinator_id: str | None = None
    ) -> None:
        self._catalog, self._check_lake, self._has_live = catalog, check_lake, has_live
        self._coordinator = {} if coordinator_id is None else {COORDINATOR_ID: coordinator_id}

    def config(self, call: CatalogCall) -> Response:
        """A client that names a read-only warehouse gets that one; any other name is this catalog itself."""
        read_only = ReadOnlyName.find(call.query.get("warehouse", "")) if self._has_live else None
        if read_only is not None:
            return answer_config(read_only, public_storage(self._catalog.properties))
        defaults = {**public_storage(self._catalog.properties), **self._coordinator}
        return answer({"defaults": defaults, "overrides": {}, "endpoints": list(ENDPOINTS)})

    def config_read_only(self, call: CatalogCall) -> Response:
        """Answers for a catalog without a warehouse for writes."""
        name = ReadOnlyName.find(call.query.get("warehouse", ""))
        if name is None:
            reason = "only `live` is served here; read and write other rows through the catalog of the cluster's lake"
            raise InvalidRequest(what=f"warehouse {call.query.get('warehouse', '')[:80]!r}", reason=reason)
        return answer_config(name, public_storage(self._catalog.properties))

    def list(self, call: CatalogCall) -> Response:
        parent = tuple(call.query["parent"].split(SEPARATOR)) if call.query.get("parent") else ()
        return answer(
            {
                "namespaces": [
                    list(n) for n in sorted(self._catalog.list_namespaces(parent)) if call.token.may_see(".".join(n))
                ]
            }
        )

    def create(self, call: CatalogCall) -> Response:
        body = call.json()
        namespace, properties = check_namespace(body.get("namespace")), _properties(body.get("properties"))
        call.check_namespace(namespace)
        self._check_lake(call.token, namespace)
        self._check_places(call, namespace, properties)
        self._catalog.create_namespace(namespace, properties)
        return answer({"namespace": list(namespace), "properties": properties})

    def load(self, call: CatalogCall) -> Response:
        self._check_seen(call)
        properties = self._catalog.load_namespace_properties(call.namespace)
        return answer(
            {"namespace": list(call.namespace), "properties": {k: v for k, v in properties.items() if k != "exists"}}
        )

    def exists(self, call: CatalogCall) -> Response:
        self._check_seen(call)
        if not self._catalog.namespace_exists(call.namespace):
            raise NoSuchNamespaceError(f"there is no namespace {'.'.join(call.namespace)}")
        return done()

    def drop(self, call: CatalogCall) -> Response:
        call.check_namespace(call.namespace)
        self._catalog.drop_namespace(call.namespace)
        return done()

    def set_properties(self, call: CatalogCall) -> Response:
        body = call.json()
        removals, updates = body.get("removals") or [], _properties(body.get("updates"))
        if not isinstance(removals, list) or not all(isinstance(r, str) for r in removals):
            raise InvalidRequest(what="removals", reason="a list of names is expected")
        call.check_namespace(call.namespace)
        self._check_places(call, call.namespace, updates)
        changed = self._catalog.update_namespace_properties(call.namespace, set(removals), updates)
        return answer({"removed": changed.removed, "updated": changed.updated, "missing": changed.missing})

    def _check_seen(self, call: CatalogCall) -> None:
        if not call.token.may_see(".".join(call.namespace)):
            raise NoSuchNamespaceError(f"there is no namespace {'.'.join(call.namespace)}")

    def _check_places(self, call: CatalogCall, namespace: tuple[str, ...], properties: dict[str, str]) -> None:
        """Raises `Forbidden`."""
        places = [v for k, v in properties.items() if k in _PLACES]
        check_places(self._catalog, call, places)
        check_own_places(self._catalog, call, namespace, places)


def _properties(body: object) -> dict[str, str]:
    if body is None:
        return {}
    if not isinstance(body, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in body.items()):
        raise InvalidRequest(what="properties", reason="an object of texts is expected")
    return body
