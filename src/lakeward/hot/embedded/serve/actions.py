# SPDX-License-Identifier: Apache-2.0
"""The server's side of `do_action`: small questions about a table, each with the role that may ask it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.serve.tables import find_table
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, TableInfo
from lakeward.protocol.auth import ANONYMOUS, Role, Token
from lakeward.protocol.codec import encode
from lakeward.protocol.flight import MOST_SNAPSHOTS, Act, ActionRequest

_LONGEST_HOLDER = 200


@dataclass(frozen=True)
class Answerer:
    role: Role
    help: str
    answer: Callable[[EmbeddedStore, ActionRequest, Token], Any]


def find_action(name: str) -> Answerer:
    try:
        return ACTIONS[Act(name)]
    except ValueError:
        raise InvalidRequest(what=f"action {name!r}", reason=f"there are {', '.join(ACTIONS)}") from None


def _table(store: EmbeddedStore, request: ActionRequest) -> TableInfo:
    if request.table is None:
        raise InvalidRequest(what="action", reason="the table is missing")
    return find_table(store, request.table, request.table_id)


def _bucket(request: ActionRequest) -> Bucket:
    if request.bucket is None:
        raise InvalidRequest(what="action", reason="the bucket is missing")
    return request.bucket


def _holder(request: ActionRequest, token: Token) -> str:
    """Name of a lease's holder. Each token has its own holders, so that no token ends another one's leases."""
    if len(request.holder) > _LONGEST_HOLDER:
        raise InvalidRequest(what="action", reason=f"a holder's name has up to {_LONGEST_HOLDER} characters")
    return request.holder if token is ANONYMOUS else f"{token.name}:{request.holder}"


def _load_table(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"table": _table(store, request)}


def _schemas(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"schemas": [s.to_json() for s in store.schemas(_table(store, request))]}


def _list_tables(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"tables": [path for path in store.list_tables() if token.may_use(path)]}


def _bounds(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"bounds": store.bounds(_table(store, request))}


def _freeze(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    bounds = store.bounds(_table(store, request), sync=True)
    table = _table(store, request)  # loaded after: no batch below the ends is newer
    return {"bounds": bounds, "table": table, "cuts": list(store.open_cuts(table))}


def _offset_at(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"offset": store.offset_at(_table(store, request), _bucket(request), request.at_ms)}


def _take_snapshot(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"snapshot": store.take_snapshot(_table(store, request), _bucket(request), _holder(request, token))}


def _take_snapshots(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    if len(request.buckets) > MOST_SNAPSHOTS:
        raise InvalidRequest(what="buckets", reason=f"{len(request.buckets)} are too many, {MOST_SNAPSHOTS} the most")
    taken = store.take_snapshots(_table(store, request), request.buckets, _holder(request, token))
    return {"snapshots": list(taken.values())}


def _release_snapshots(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    store.release_snapshots(_table(store, request), _holder(request, token))
    return {}


def _partitions(store: EmbeddedStore, request: ActionRequest, token: Token) -> Any:
    return {"partitions": list(store.partitions(_table(store, request)))}


ACTIONS: dict[Act, Answerer] = {
    Act.LOAD_TABLE: Answerer(Role.READ, "a table with its newest schema", _load_table),
    Act.SCHEMAS: Answerer(Role.READ, "every schema that a table had", _schemas),
    Act.LIST_TABLES: Answerer(Role.READ, "every table's path", _list_tables),
    Act.BOUNDS: Answerer(Role.READ, "log bounds of every bucket", _bounds),
    Act.FREEZE: Answerer(Role.READ, "log bounds after an fsync, and the table", _freeze),
    Act.OFFSET_AT: Answerer(Role.READ, "first offset at or after a time", _offset_at),
    Act.TAKE_SNAPSHOT: Answerer(Role.READ, "a KV snapshot, leased to a holder", _take_snapshot),
    Act.TAKE_SNAPSHOTS: Answerer(Role.READ, "KV snapshots of many buckets, leased to a holder", _take_snapshots),
    Act.RELEASE_SNAPSHOTS: Answerer(Role.READ, "gives a holder's snapshots back", _release_snapshots),
    Act.PARTITIONS: Answerer(Role.READ, "a table's partitions", _partitions),
}


def answer(store: EmbeddedStore, name: str, request: ActionRequest, token: Token = ANONYMOUS) -> Any:
    return encode(find_action(name).answer(store, request, token))
