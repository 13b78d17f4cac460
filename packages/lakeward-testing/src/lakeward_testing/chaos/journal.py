# SPDX-License-Identifier: Apache-2.0
"""What passed between the jobs and the server, as the proxy between them saw it: hand-outs, lease checks, lake commits.

It outlives every process that is hurt, so that leases and epochs can be told from before a restart to after it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakeward.errors import LeaseLost
from lakeward.model import TIER
from lakeward.protocol import routes
from lakeward.protocol.heartbeat import LEASED
from lakeward.spi import EPOCH_KEY, JOB_KEY, OFFSETS_KEY, REWRITE_KEY, ROUND_KEY, TABLE_ID_KEY
from lakeward_testing.httpproxy import ProxyAnswer, ProxyRequest


@dataclass(frozen=True, kw_only=True)
class HandOut:
    at: float
    table_id: str
    epoch: int
    instance: str
    coordinator_epoch: int
    kind: str = TIER
    """Epochs are counted for each kind of work."""


@dataclass(frozen=True, kw_only=True)
class LakeCommit:
    """`accepted` None: nobody saw the catalog's answer. `newest`: the newest epoch that the table had been handed out
    with by then. A compaction has an id of its own and says the round's epoch: what refuses a late one is the fence.
    """

    at: float
    table_id: str
    round_id: str
    epoch: int
    job: str
    snapshot_id: int
    sequence: int
    offsets: Mapping[str, int]
    accepted: bool | None
    newest: int
    is_rewrite: bool = False

    @property
    def has_lost_its_lease(self) -> bool:
        """Another hand-out came after its own: whoever sends this has no lease any more."""
        return self.epoch < self.newest


class RunJournal:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hand_outs: list[HandOut] = []
        self.commits: list[LakeCommit] = []
        self.checks = 0
        self.checks_refused = 0

    def see(self, request: ProxyRequest, answer: ProxyAnswer | None) -> None:
        """Whatever it cannot read is not its business: the parties complain themselves."""
        if request.method != "POST":
            return
        with self._lock, contextlib.suppress(ValueError, KeyError, TypeError):
            self._see(request, answer)

    def _see(self, request: ProxyRequest, answer: ProxyAnswer | None) -> None:
        if request.path.startswith(routes.ICEBERG) and "/tables/" in request.path:
            self._note_commit(json.loads(request.body), answer)
        elif request.path in (routes.HEARTBEAT, routes.LEASE_CHECK) and answer is not None and answer.status == 200:
            told = json.loads(answer.body)
            if request.path == routes.HEARTBEAT:
                self._note_hand_outs(json.loads(request.body), told)
            else:
                self.checks += 1
                self.checks_refused += not told["held"]

    def _note_hand_outs(self, asked: dict[str, Any], told: dict[str, Any]) -> None:
        for table in told.get("tables", ()):
            self.hand_outs.append(
                HandOut(
                    at=time.time(),
                    table_id=table["table_id"],
                    epoch=int(table["epoch"]),
                    instance=asked["instance"],
                    coordinator_epoch=int(told["coordinator_epoch"]),
                    kind=table.get("kind", TIER),
                )
            )

    def _note_commit(self, body: dict[str, Any], answer: ProxyAnswer | None) -> None:
        added = [u["snapshot"] for u in body.get("updates", ()) if u.get("action") == "add-snapshot"]
        accepted = None if answer is None or answer.status >= 500 else answer.status < 300
        if LEASED in body and answer is not None:
            self.checks += 1
            self.checks_refused += LeaseLost.__name__.encode() in answer.body
        for snapshot in added:
            number, sequence = int(snapshot["snapshot-id"]), int(snapshot["sequence-number"])
            self._add(snapshot["summary"], number, sequence, time.time(), accepted=accepted)

    def note_landed(self, properties: Mapping[str, str], number: int, at: float) -> None:
        """A snapshot that was found in the lake, of a format whose commits pass no server. Refused ones leave no
        trace."""
        with self._lock, contextlib.suppress(ValueError, KeyError):
            self._add(properties, number, number, at, accepted=True)

    def _add(self, summary: Mapping[str, str], number: int, sequence: int, at: float, *, accepted: bool | None) -> None:
        table_id, rewrite = summary[TABLE_ID_KEY], summary.get(REWRITE_KEY)
        rounds = (h.epoch for h in self.hand_outs if h.table_id == table_id and h.kind == TIER and h.at <= at)
        newest = max(rounds, default=0)
        self.commits.append(
            LakeCommit(
                at=at,
                table_id=table_id,
                round_id=rewrite or summary[ROUND_KEY],
                epoch=newest if rewrite else int(summary[EPOCH_KEY]),
                job=summary[JOB_KEY],
                snapshot_id=number,
                sequence=sequence,
                offsets=_offsets(summary[OFFSETS_KEY]),
                accepted=accepted,
                newest=newest,
                is_rewrite=rewrite is not None,
            )
        )

    # ---- what it tells ---------------------------------------------------------------------------------------------
    def stale(self) -> list[LakeCommit]:
        """Commits that were tried without a lease."""
        return [c for c in self.commits if c.has_lost_its_lease]

    def wrong_commits(self) -> list[str]:
        """What the accepted commits of each table did that no commit may: go back, or land the same round twice."""
        wrong: list[str] = []
        by_table: dict[str, list[LakeCommit]] = defaultdict(list)
        for commit in self.commits:
            if commit.accepted:
                by_table[commit.table_id].append(commit)
        for table, commits in by_table.items():
            wrong += _went_back(table, sorted(commits, key=lambda c: c.sequence))
            wrong += _landed_twice(table, commits)
        return wrong

    def wrong_epochs(self) -> list[str]:
        """Epochs that were handed out again, or went back, restarts included."""
        wrong: list[str] = []
        seen: dict[tuple[str, str], HandOut] = {}
        coordinator = 0
        for now in self.hand_outs:
            before = seen.get((now.table_id, now.kind))
            if before is not None and (
                now.epoch < before.epoch or (now.epoch == before.epoch and now.instance != before.instance)
            ):
                wrong.append(f"table {now.table_id}: epoch {now.epoch} was handed out after {before.epoch}")
            if now.coordinator_epoch < coordinator:
                wrong.append(f"the coordinator's epoch went back from {coordinator} to {now.coordinator_epoch}")
            seen[now.table_id, now.kind], coordinator = now, now.coordinator_epoch
        return wrong


def _offsets(text: str) -> dict[str, int]:
    """`{"offsets": {partition: [[bucket, offset], ...]}}`; a path (a very big map) is not followed."""
    if not text.startswith("{"):
        return {}
    return {
        f"{partition}/{n}": offset for partition, pairs in json.loads(text)["offsets"].items() for n, offset in pairs
    }


def _went_back(table: str, commits: Iterable[LakeCommit]) -> list[str]:
    wrong, held = [], dict[str, int]()
    for commit in commits:
        back = {
            b: (o, commit.offsets.get(b)) for b, o in held.items() if commit.offsets and commit.offsets.get(b, -1) < o
        }
        if back:
            wrong.append(f"table {table}: round {commit.round_id} of {commit.job} took offsets back: {back}")
        held |= commit.offsets
    return wrong


def _landed_twice(table: str, commits: Iterable[LakeCommit]) -> list[str]:
    snapshots: dict[str, set[int]] = defaultdict(set)
    for commit in commits:
        snapshots[commit.round_id].add(commit.snapshot_id)
    return [f"table {table}: round {r} landed as {len(ids)} snapshots" for r, ids in snapshots.items() if len(ids) > 1]
