# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: which member reads which bucket of a table, and the positions that a group has committed.

A bucket changes hands once its old owner no longer reports it, or has not reported for a lease. Positions are on disk
when a call returns and never go back.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.log.durable import make_folder, write_whole
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Clock, TableInfo
from lakeward.protocol.groups import GroupAnswer, GroupBeat, GroupStatus

LEASE_MS = 10_000
MOST_MEMBERS, MOST_GROUPS = 1_000, 1_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass
class _Group:
    path: Path
    offsets: dict[str, int]
    members: dict[str, int] = field(default_factory=dict)
    """Member -> when it last reported."""

    owners: dict[str, str] = field(default_factory=dict)
    generation: int = 0


class ConsumerGroups:
    """Thread-safe. One per server."""

    def __init__(self, store: EmbeddedStore, data: Path, clock: Clock, lease_ms: int = LEASE_MS) -> None:
        self.store, self.data, self.clock, self.lease_ms = store, data, clock, lease_ms
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, str], _Group] = {}

    def beat(self, table: TableInfo, group: str, asked: GroupBeat) -> GroupAnswer:
        """Raises `InvalidRequest`."""
        if not _NAME.fullmatch(group) or not _NAME.fullmatch(asked.member):
            raise InvalidRequest(what=f"group {group[:100]!r}", reason="use letters, digits, _ . and -, up to 100")
        buckets = sorted(str(bucket) for bucket in self.store.bounds(table))
        with self._lock:
            held = self._load(table, group)
            self._expire(held)
            if asked.member not in held.members and len(held.members) >= MOST_MEMBERS:
                raise InvalidRequest(what=f"group {group}", reason=f"it has {MOST_MEMBERS} members already")
            self._take(held, asked, set(buckets))
            self._share_out(held, buckets)
            due = self._shares(held, buckets).get(asked.member, ())
            mine = [bucket for bucket in due if held.owners.get(bucket) == asked.member]
            return GroupAnswer(
                buckets={bucket: held.offsets.get(bucket, -1) for bucket in mine},
                generation=held.generation,
                lease_ms=self.lease_ms,
            )

    def show(self, table: TableInfo, group: str) -> GroupStatus:
        bounds = {str(bucket): b for bucket, b in self.store.bounds(table).items()}
        with self._lock:
            held = self._load(table, group)
            self._expire(held)
            return GroupStatus(
                path=table.path,
                group=group,
                generation=held.generation,
                members=tuple(sorted(held.members)),
                owners=dict(held.owners),
                offsets=dict(held.offsets),
                lag=sum(max(0, b.end - held.offsets.get(name, b.start)) for name, b in bounds.items()),
            )

    def _take(self, held: _Group, asked: GroupBeat, buckets: set[str]) -> None:
        """A restarted server learns from the first reports who holds what."""
        for bucket in asked.holding:
            if bucket in buckets:
                held.owners.setdefault(bucket, asked.member)
        before = dict(held.offsets)
        for bucket, offset in asked.offsets.items():
            if held.owners.get(bucket) == asked.member:
                held.offsets[bucket] = max(offset, held.offsets.get(bucket, -1))
        if held.offsets != before:
            make_folder(held.path.parent)
            write_whole(held.path, json.dumps(held.offsets).encode())
        if asked.member not in held.members or asked.leaving:
            held.generation += 1
        if asked.leaving:
            held.members.pop(asked.member, None)
        else:
            held.members[asked.member] = self.clock.now_ms()
        share = self._shares(held, buckets)
        for bucket in [b for b, owner in held.owners.items() if owner == asked.member]:
            is_surplus = bucket not in share.get(asked.member, ())
            if asked.leaving or (is_surplus and bucket not in asked.holding):
                del held.owners[bucket]

    def _share_out(self, held: _Group, buckets: Iterable[str]) -> None:
        for member, share in self._shares(held, buckets).items():
            for bucket in share:
                held.owners.setdefault(bucket, member)

    def _shares(self, held: _Group, buckets: Iterable[str]) -> dict[str, list[str]]:
        """The buckets that each member is due: as many as the others, and of those that it has as many as may be."""
        names, members = sorted(buckets), sorted(held.members)
        if not members:
            return {}
        shares: dict[str, list[str]] = {member: [] for member in members}
        most, extra = divmod(len(names), len(members))
        limits = {member: most + (i < extra) for i, member in enumerate(members)}
        free = []
        for bucket in names:
            owner = held.owners.get(bucket)
            if owner in shares and len(shares[owner]) < limits[owner]:
                shares[owner].append(bucket)
            else:
                free.append(bucket)
        for bucket in free:
            member = next(m for m in members if len(shares[m]) < limits[m])
            shares[member].append(bucket)
        return shares

    def _expire(self, held: _Group) -> None:
        now = self.clock.now_ms()
        for member in [m for m, at in held.members.items() if now - at > self.lease_ms]:
            del held.members[member]
            held.generation += 1
            held.owners = {b: owner for b, owner in held.owners.items() if owner != member}

    def _load(self, table: TableInfo, group: str) -> _Group:
        key = (table.table_id, group)
        if key not in self._groups:
            path = self.data / "groups" / table.table_id / f"{group}.json"
            offsets: dict[str, int] = {}
            with suppress(FileNotFoundError):
                offsets = {str(bucket): int(n) for bucket, n in json.loads(path.read_bytes()).items()}
            if len(self._groups) >= MOST_GROUPS:
                raise InvalidRequest(what=f"group {group}", reason=f"this server has {MOST_GROUPS} groups already")
            self._groups[key] = _Group(path, offsets)
        return self._groups[key]
