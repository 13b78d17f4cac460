# SPDX-License-Identifier: Apache-2.0
"""Warehouses that are read and never written: `live` shows tables with their hot tail, `cut:<name>` shows them at a
cut. A client names one as its `warehouse` and gets the prefix of its paths in the answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Response
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from lakeward.errors import CutNotReady, InvalidRequest, ReadOnlyWarehouse
from lakeward.lake.iceberg.live import LiveMetadata, at_snapshot
from lakeward.model import CutState, TablePath
from lakeward.protocol.readplan import WriteToken
from lakeward.protocol.tables import CutStatus
from lakeward.server.iceberg.answers import answer, done
from lakeward.server.iceberg.call import CatalogCall
from lakeward.server.iceberg.vending import CredentialVendor, answer_vended
from lakeward.server.live.warehouse import LiveWarehouse

LIVE = "live"
AT_LEAST_HEADER = "x-lakeward-at-least"
_NAME = re.compile(r"live(;at-least=(?P<token>[A-Za-z0-9_=-]{1,8000}))?|cut:(?P<cut>[A-Za-z0-9_-]{1,63})")

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
)

LoadCut = Callable[[str], CutStatus]
"""Raises `CutNotFound`."""


@dataclass(frozen=True, kw_only=True)
class ReadOnlyName:
    """A warehouse's name, taken apart."""

    name: str
    at_least: str | None = None
    cut: str | None = None

    @classmethod
    def find(cls, name: str) -> ReadOnlyName | None:
        """None: it names no read-only warehouse. Raises `InvalidRequest` for a name that was meant as one."""
        if name.lower() != LIVE and not name.lower().startswith((f"{LIVE};", "cut:")):
            return None
        matched = _NAME.fullmatch(name)
        if matched is None:
            raise cls._unknown(name)
        return cls(name=name, at_least=matched["token"], cut=matched["cut"])

    @classmethod
    def parse(cls, name: str) -> ReadOnlyName:
        """Raises `InvalidRequest`."""
        parsed = cls.find(name)
        if parsed is None:
            raise cls._unknown(name)
        return parsed

    @staticmethod
    def _unknown(name: str) -> InvalidRequest:
        reason = "the warehouses are `default`, which takes writes, `live`, `live;at-least=<token>` and `cut:<name>`"
        return InvalidRequest(what=f"warehouse {name[:80]!r}", reason=reason)


class ReadOnlyTables:
    """Loads of tables in read-only warehouses. `instead`: where writes go."""

    def __init__(
        self,
        catalog: Catalog,
        live: LiveWarehouse,
        load_cut: LoadCut,
        instead: str = "through warehouse `default` of the same catalog",
    ) -> None:
        self._catalog, self._live, self._load_cut, self._instead = catalog, live, load_cut, instead
        self._vendor = CredentialVendor.of(catalog.properties)

    def load(self, call: CatalogCall) -> Response:
        """With an `ETag`, so that a client that has this very answer gets 304."""
        return self._tagged(call, self._find(call))

    def _find(self, call: CatalogCall) -> LiveMetadata:
        name = ReadOnlyName.parse(call.path["warehouse"])
        path = TablePath(*call.table) if len(call.table) == 2 else None
        if name.cut is not None:
            return self._at_cut(call, name.cut, path)
        entry = None if path is None else self._live.find(path)
        if entry is None:
            table = self._catalog.load_table(call.table)
            return LiveMetadata(
                snapshot=table.current_snapshot(), metadata=table.metadata, location=table.metadata_location
            )
        token = name.at_least or call.headers.get(AT_LEAST_HEADER)
        return self._live.load(entry, None if not token else WriteToken.parse(token), call.token_name)

    def _at_cut(self, call: CatalogCall, cut: str, path: TablePath | None) -> LiveMetadata:
        status = self._load_cut(cut)
        frozen = None if path is None else status.cut.find(path)
        if frozen is None:
            raise NoSuchTableError(f"table {'.'.join(call.table)} is not in cut {cut}")
        side = next((s for s in frozen.sides if s.is_readable), None)
        if side is None or status.state is not CutState.READY:
            raise CutNotReady(cut=cut, state=str(status.state), reason="; ".join(status.notes))
        return at_snapshot(self._catalog.load_table(call.table), side.snapshot_id, f"cut-{cut}")

    def _tagged(self, call: CatalogCall, loaded: LiveMetadata) -> Response:
        """Credentials are part of the tag: a client that gets 304 goes on with those that it has."""
        vended = None if self._vendor is None else self._vendor.find(call, loaded.metadata, writes=False)
        name = loaded.location.rpartition("/")[2]
        tag = f'"{name}"' if vended is None else f'"{name}-{vended.ends_at_ms}"'
        if call.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        response = answer_vended(call, call.table, (loaded.location, loaded.metadata), vended, loaded.body)
        response.headers["ETag"] = tag
        return response

    def credentials(self, call: CatalogCall) -> Response:
        """New ones for a client whose own are about to end. They read and do not write."""
        ReadOnlyName.parse(call.path["warehouse"])
        metadata = self._catalog.load_table(call.table).metadata
        vended = None if self._vendor is None else self._vendor.renew(call, metadata, writes=False)
        return answer({"storage-credentials": [] if vended is None else [vended.to_json()]})

    def exists(self, call: CatalogCall) -> Response:
        ReadOnlyName.parse(call.path["warehouse"])
        self._catalog.load_table(call.table)
        return done()

    def refuse(self, call: CatalogCall) -> Response:
        """Every write. Raises `ReadOnlyWarehouse`."""
        raise ReadOnlyWarehouse(warehouse=ReadOnlyName.parse(call.path["warehouse"]).name, instead=self._instead)


def answer_config(name: ReadOnlyName, storage: dict[str, str]) -> Response:
    body: dict[str, Any] = {"defaults": storage, "overrides": {"prefix": name.name}, "endpoints": list(ENDPOINTS)}
    return answer(body)
