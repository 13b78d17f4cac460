# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster's servers: who coordinates, who leads which bucket, and calls that follow them when they move."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeward.errors import ClusterUnavailable, InvalidConfig, LakewardError, ServerUnavailable
from lakeward.hot.fluss.failures import MOVED, fluss_code_of
from lakeward.hot.fluss.wire.connection import Credentials, FlussConnection
from lakeward.hot.fluss.wire.messages import ALTER_DATABASE, METADATA, SCAN_KV, Api, Message
from lakeward.hot.logbatch.header import MagicOne

_RETRIES = 5
_PAUSE_S = 0.1
"""Doubled each time: a leader is elected within a second or two, longer waits are the caller's."""


@dataclass(frozen=True, order=True)
class LogBucket:
    """A bucket as Fluss names it: partitions have numbers."""

    table_id: int
    partition_id: int | None
    number: int


def path_message(database: str, table: str) -> Message:
    return {"database": database, "table": table}


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """`host:port[,host:port]`. Raises `InvalidConfig`."""
    addresses = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isdigit():
            raise InvalidConfig(where=f"Fluss address {part.strip()!r}", reason="write it as host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


class FlussServers:
    """Connections are made once per server and shared. Safe to use from several threads."""

    def __init__(self, bootstrap: str, *, credentials: Credentials | None = None, timeout_s: float = 30.0) -> None:
        self.bootstrap = bootstrap
        self._seeds = parse_addresses(bootstrap)
        self._credentials, self._timeout_s = credentials, timeout_s
        self._connections: dict[tuple[str, int], FlussConnection] = {}
        self._coordinator: tuple[str, int] | None = None
        self._tablets: dict[int, tuple[str, int]] = {}
        self._leaders: dict[LogBucket, int] = {}
        self._lock = threading.Lock()

    # ---- calls -----------------------------------------------------------------------------------------------------
    def call_any(self, api: Api, values: Mapping[str, Any]) -> Message:
        """A call that every server answers. The next one is asked when one is away."""
        failed: LakewardError | None = None
        for address in self._addresses():
            try:
                return self._connection(address).call(api, values)
            except ServerUnavailable as error:
                failed = error
        assert failed is not None
        raise failed

    def call_coordinator(self, api: Api, values: Mapping[str, Any], timeout_s: float | None = None) -> Message:
        """A call that the leading coordinator answers; a new leader is looked for once when the old one does not."""
        address = self._coordinator or self._find_coordinator()
        try:
            return self._connection(address).call(api, values, timeout_s)
        except ServerUnavailable:
            coordinator = self._find_coordinator()
            if coordinator == address:
                raise
            return self._connection(coordinator).call(api, values, timeout_s)

    def leader(self, path: Message, bucket: LogBucket) -> FlussConnection:
        """The server that leads a bucket. Raises `ServerUnavailable` while there is none."""
        if bucket not in self._leaders:
            self._find_leaders(path, bucket)
        with self._lock:
            node = self._leaders.get(bucket)
            address = None if node is None else self._tablets.get(node)
        if address is None:
            raise ClusterUnavailable(address=self.bootstrap, reason=f"Fluss: bucket {bucket} has no leader now")
        return self._connection(address)

    @property
    def magic_one(self) -> MagicOne:
        """Meaning of magic 1 in batches of this cluster, derived from the calls that its tablet servers support."""
        with self._lock:
            connections = list(self._connections.values())
        return MagicOne.STATISTICS if any(c.lists(SCAN_KV) for c in connections) else MagicOne.LEADER_EPOCH

    @property
    def has_growing_epochs(self) -> bool:
        """Whether the coordinator's epoch tells one start of it from the next, as of 1.0: told from the calls that it
        knows. False before it was called."""
        with self._lock:
            connections = list(self._connections.values())
        return any(c.lists(ALTER_DATABASE) for c in connections)

    def forget_leader(self, bucket: LogBucket) -> None:
        with self._lock:
            self._leaders.pop(bucket, None)

    def follow(self, path: Message, bucket: LogBucket, call: Callable[[FlussConnection], Message]) -> Message:
        """`call` on the bucket's leader, again on the new one when it has moved. It raises what the answer says."""
        for attempt in range(_RETRIES):
            try:
                return call(self.leader(path, bucket))
            except ServerUnavailable as error:
                self.forget_leader(bucket)
                is_moved = fluss_code_of(error) in MOVED or fluss_code_of(error) is None
                if not is_moved or attempt == _RETRIES - 1:
                    raise
            time.sleep(_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    # ---- metadata --------------------------------------------------------------------------------------------------
    def group_by_leader(self, path: Message, buckets: Sequence[LogBucket]) -> dict[FlussConnection, list[LogBucket]]:
        """Buckets by the server that leads them: one request each in place of one per bucket. A table that was just
        made gets its leaders a moment later."""
        by_leader: dict[FlussConnection, list[LogBucket]] = {}
        for bucket in buckets:
            by_leader.setdefault(self._leader_soon(path, bucket), []).append(bucket)
        return by_leader

    def _leader_soon(self, path: Message, bucket: LogBucket) -> FlussConnection:
        for attempt in range(_RETRIES - 1):
            try:
                return self.leader(path, bucket)
            except ServerUnavailable:
                time.sleep(_PAUSE_S * 2**attempt)
        return self.leader(path, bucket)

    def _find_coordinator(self) -> tuple[str, int]:
        answer = self.call_any(METADATA, {})
        self._note(answer)
        if self._coordinator is None:
            raise ClusterUnavailable(address=self.bootstrap, reason="Fluss: there is no leading coordinator now")
        return self._coordinator

    def _find_leaders(self, path: Message, bucket: LogBucket) -> None:
        """Metadata by path has no leaders of partitions: those are asked for by number."""
        wanted: Message = {"paths": [path]} if bucket.partition_id is None else {"partition_ids": [bucket.partition_id]}
        self._note(self.call_any(METADATA, wanted))

    def _note(self, answer: Message) -> None:
        with self._lock:
            node = answer.get("coordinator")
            if node is not None:
                self._coordinator = (node["host"], node["port"])
            self._tablets.update({n["id"]: (n["host"], n["port"]) for n in answer.get("tablets", [])})
            for table in (*answer.get("tables", []), *answer.get("partitions", [])):
                for bucket in table.get("buckets", []):
                    name = LogBucket(table["table_id"], table.get("partition_id"), bucket.get("bucket", 0))
                    if bucket.get("leader", -1) >= 0:
                        self._leaders[name] = bucket["leader"]

    def _addresses(self) -> list[tuple[str, int]]:
        """Known ones first: they answered before; then what the user gave."""
        with self._lock:
            known = [*([self._coordinator] if self._coordinator else []), *self._tablets.values()]
        return list(dict.fromkeys([*known, *self._seeds]))

    def _connection(self, address: tuple[str, int]) -> FlussConnection:
        with self._lock:
            if address not in self._connections:
                self._connections[address] = FlussConnection(
                    *address, credentials=self._credentials, timeout_s=self._timeout_s
                )
            return self._connections[address]
