# SPDX-License-Identifier: Apache-2.0
"""The lab: starts everything, hurts it by plan, heals it, waits until the lake has caught up, and checks the
invariants.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from lakeward.client import Client, connect
from lakeward.errors import LakewardError, TimedOut
from lakeward.protocol import routes
from lakeward_testing.chaos.child import LabChild
from lakeward_testing.chaos.invariants import Evidence, InvariantVerdict, judge
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.chaos.plan import FaultKind, PlannedFault, plan_faults
from lakeward_testing.chaos.proxy import HurtingProxy
from lakeward_testing.chaos.reader import RecordFolder
from lakeward_testing.chaos.resources import (
    empty_disk,
    fill_disk,
    free_handles,
    limit_handles,
    memory_bytes,
    mount_disk,
    unmount_disk,
)
from lakeward_testing.chaos.spells import Spells, watch_spell
from lakeward_testing.chaos.switches import CLOCK, DISK_FULL, READ_ONLY, Switches
from lakeward_testing.chaos.tables import BROKEN, LOG, PK, TABLES, break_table, create_tables, meddle, watch_commits
from lakeward_testing.chaos.watch import Watch
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

START_S = 300.0
"""Two Sparks that start on a machine with other work to do took more than 90 s."""

CATCH_UP_S = 180.0
REVIVE_S = 0.3
HERE = "lakeward_testing.chaos"
SETTINGS = {
    "datalake.format": "iceberg",
    "coordinator.tick": "50 ms",
    "coordinator.heartbeat.interval": "500 ms",
    "coordinator.lease.duration": "3 s",
    "coordinator.sweep.interval": "200 ms",
    "coordinator.backoff.initial": "200 ms",
    "coordinator.quarantine.failures": "1000000",
    "coordinator.orphan.interval": "1 s",
    "coordinator.orphan.grace": "2 s",
    "coordinator.maintenance.interval": "2 s",
    "log.segment.file-size": "64 kb",
    "log.retention.check-interval": "1 s",
    "remote.log.task-interval-duration": "1 s",
}
"""Everything quick, so that a minute holds what a day does otherwise; small segments, so that they roll, move and go.
"""


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    seed: int = 0
    seconds: float = 60.0
    kinds: Collection[FaultKind] = tuple(FaultKind)
    every_s: float = 2.0
    spark: bool = False
    format: str = "iceberg"
    """Of the lake: iceberg, or paimon, delta, lance or hudi on a folder."""

    producers: int = 2
    spell_s: float = 5.0
    """How long each quiet spell lasts that shows what one table's failure and a lake that is away change; 0: none."""


@dataclass(kw_only=True)
class LabReport:
    """`verdicts`: one for each invariant. `faults`: how many of each kind happened; `figures` what else was counted."""

    seed: int
    verdicts: list[InvariantVerdict]
    faults: Counter[str]
    steps: Counter[str]
    figures: dict[str, float]

    @property
    def holds(self) -> bool:
        return all(v.held is not False for v in self.verdicts)


@dataclass(order=True)
class _Later:
    at: float
    turn: int
    do: Callable[[], None] = field(compare=False)


class ChaosLab:
    """One seed's run in one folder. `say` gets a line for each thing that happens."""

    def __init__(self, folder: Path, options: LabOptions, say: Callable[[str], None] = print) -> None:
        self.folder, self.options, self.say = folder, options, say
        self.http_port, self.flight_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.plan = plan_faults(
            options.seed, options.seconds, options.kinds, every_s=options.every_s, spark=options.spark
        )
        self.happened: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.windows: list[tuple[float, float, str]] = []
        self.broken: list[str] = []
        self._later: list[_Later] = []
        self._turn = itertools.count()
        self._died: dict[str, float] = {}
        self._armed: dict[int, PlannedFault] = {}
        self._meddlers: list[threading.Thread] = []
        self._has_disk = False
        (folder / "records").mkdir(parents=True)
        self.switches = {name: Switches(folder / "switches" / name) for name in ("server", "job-a", "job-b")}
        self.journal = RunJournal()
        self.proxies: dict[str, HurtingProxy] = {}
        self.children: dict[str, LabChild] = {}

    # ---- one run ---------------------------------------------------------------------------------------------------
    def run(self) -> LabReport:
        try:
            self._start()
            watch = Watch(self.url, (LOG, PK), self._memory)
            with watch_commits(self._warehouse, self.options.format, self.journal):
                spells = self._spells() if self.options.spell_s else None
                began, quiet_bytes = time.monotonic(), watch.take_peak()
                self._hurt(began)
                self._heal()
                recovery_s = self._settle()
            watched = watch.stop()
            evidence = Evidence(
                folder=self.folder,
                url=self.url,
                watched=watched,
                windows=tuple(self.windows),
                recovery_s=recovery_s,
                journal=self.journal,
                spells=spells,
                broken=self.broken,
                memory=(quiet_bytes, watched.peak_bytes) if self.happened[FaultKind.HOSTILE] else None,
            )
            verdicts, figures = judge(evidence, self._finish)
            figures |= {"seconds": time.monotonic() - began, "longest-without-commit-s": watched.longest_s}
            figures["starts"] = sum(c.starts for c in self.children.values())
            return LabReport(
                seed=self.options.seed, verdicts=verdicts, faults=self.happened, steps=self.steps, figures=figures
            )
        finally:
            self._close()

    @property
    def _warehouse(self) -> Path:
        return self.folder / "data" / "warehouse"

    def _memory(self) -> int:
        return memory_bytes(self.children["server"].pids)

    def _start(self) -> None:
        if FaultKind.FULL_DISK in self.options.kinds:
            self._has_disk = mount_disk(self.folder / "data")
        self._add_server()
        with connect(self.url) as client:
            create_tables(client, format=self.options.format)
        break_table(self.url, self._warehouse, self.options.format)
        self.proxies = {
            "jobs": HurtingProxy(self.http_port, self.flight_port, self.journal),
            "clients": HurtingProxy(self.http_port, self.flight_port),
        }
        for name in ("job-a", "job-b"):
            self._add_job(name)
        for kind, number in itertools.product(("log", "pk"), range(self.options.producers)):
            self._add_producer(kind, number)
        arguments = [
            self.proxies["clients"].url,
            LOG,
            PK,
            str(self.folder / "records"),
            str(self.folder / "reads.jsonl"),
        ]
        self._add("reader", "reader", arguments)
        wait_until(
            self._all_at_work,
            limit_s=START_S,
            poll_s=0.2,
            what="first rows of every producer, first rounds",
            state=self._last_words,
        )

    def _all_at_work(self) -> bool:
        """Nothing is hurt before rows flow: a lab that hurts an idle system proves nothing."""
        records = RecordFolder(self.folder / "records")
        acked = [r for kind in TABLES for r in records.load(kind).values() if r.acked]
        with connect(self.url) as client:
            tiered = [client.server.ask("GET", routes.COMMITTED.format(table=t))["round_id"] for t in (LOG, PK)]
        return len(acked) == 2 * self.options.producers and all(tiered)

    def _last_words(self) -> str:
        return "\n".join(f"{name}: {child.last_words(3)}" for name, child in self.children.items())

    def _add_server(self) -> None:
        ready = self.folder / "ready"
        pairs = {
            **SETTINGS,
            "datalake.format": self.options.format,
            "server.port": str(self.http_port),
            "server.flight-port": str(self.flight_port),
            "server.data-dir": str(self.folder / "data"),
            **({"server.disk.reserve": "64 mb"} if self._has_disk else {}),
        }
        self._add(
            "server",
            "serverprocess",
            [str(self.switches["server"].folder), str(ready), *(f"{k}={v}" for k, v in pairs.items())],
        )
        self._wait_server()

    def _wait_server(self) -> None:
        """Until it answers, started again should it die meanwhile."""
        server = self.children["server"]

        def answers() -> bool:
            if not server.is_alive():
                server.start()
            return httpx.get(self.url + routes.READY, timeout=2).status_code == 200

        wait_until(answers, limit_s=START_S, what="the server", tolerate=(httpx.HTTPError,), state=server.last_words)

    def _add_job(self, name: str) -> None:
        arguments = [str(self.switches[name].folder), self.proxies["jobs"].url, name, "2"]
        arguments += ["local[2,4]"] if self.options.spark else []
        environment = {
            "LAKEWARD_TIERING__HEARTBEAT__INTERVAL": "200 ms",
            "LAKEWARD_TIERING__SPLIT__TARGET_BYTES": "16 kb",
        }
        self._add(name, "jobprocess", arguments, environment)

    def _add_producer(self, kind: str, number: int) -> None:
        record = self.folder / "records" / f"{kind}-{number}.jsonl"
        seed = self.options.seed * 100 + number
        self._add(
            f"{kind}-{number}",
            "producer",
            [self.proxies["clients"].url, TABLES[kind], str(number), str(record), str(seed)],
        )

    def _add(self, name: str, module: str, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        child = LabChild(name, f"{HERE}.{module}", arguments, self.folder / f"{name}.log", environment)
        self.children[name] = child
        child.start()

    def _spells(self) -> Spells:
        """Three quiet spells, each with one thing different."""
        seconds = self.options.spell_s
        with connect(self.url) as client:
            client.server.ask("POST", routes.PAUSE.format(table=BROKEN))
            calm = watch_spell(client, seconds)
            client.server.ask("POST", routes.RESUME.format(table=BROKEN))
            failing = watch_spell(client, seconds)
            self.proxies["jobs"].begin("500", seconds)
            self._switch(("server", "job-a", "job-b"), READ_ONLY, "on", seconds)
            no_lake = watch_spell(client, seconds)
            self._tick(time.monotonic())
        return Spells(calm=calm, failing=failing, no_lake=no_lake)

    # ---- hurting ---------------------------------------------------------------------------------------------------
    def _hurt(self, began: float) -> None:
        pending = list(self.plan)
        while (now := time.monotonic()) < began + self.options.seconds:
            while pending and pending[0].at_s <= now - began:
                self._apply(pending.pop(0))
            self._tick(now)
            time.sleep(0.05)

    def _tick(self, now: float) -> None:
        while self._later and self._later[0].at <= now:
            heapq.heappop(self._later).do()
        self._note_steps()
        for name in ("server", "job-a", "job-b"):
            self._revive(name, now)

    def _revive(self, name: str, now: float) -> None:
        """What died comes back a moment later under its old name."""
        if self.children[name].is_alive():
            self._died.pop(name, None)
        elif now - self._died.setdefault(name, now) > REVIVE_S:
            self.children[name].start()
            self._died.pop(name)

    def _note_steps(self) -> None:
        """Steps that were armed and have happened; a process that stopped itself is woken in the end."""
        for name, switches in self.switches.items():
            for number in switches.take_happened():
                fault = self._armed.pop(number)
                self.steps[f"{fault.action} at {fault.point}"] += 1
                self._happened(fault)
                if fault.action == "pause":
                    self._after(fault.seconds, partial(self.children[name].send, signal.SIGCONT))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._later, _Later(time.monotonic() + seconds, next(self._turn), do))

    def _happened(self, fault: PlannedFault) -> None:
        self.happened[fault.kind] += 1
        now = time.time()
        self.windows.append((now, now + fault.seconds, f"{fault.kind}:{fault.target}"))
        self.say(str(fault))

    def _apply(self, fault: PlannedFault) -> None:
        if fault.point:
            number = next(self._turn)
            self._armed[number] = fault
            self.switches[fault.target].arm(number, fault.point, fault.action)
            return
        if self._do(fault):
            self._happened(fault)

    def _do(self, fault: PlannedFault) -> bool:
        match fault.kind:
            case FaultKind.KILL | FaultKind.PAUSE:
                return self._signal(fault)
            case FaultKind.CUT:
                self._cut(fault.target)
            case FaultKind.DELAY | FaultKind.LOSE_ANSWER | FaultKind.NO_COORDINATOR:
                self.proxies[fault.target].begin(str(fault.kind), fault.seconds)
            case FaultKind.CATALOG:
                self.proxies["jobs"].begin(fault.target, fault.seconds)
            case FaultKind.DISK_FULL:
                self._switch(("server",), DISK_FULL, "on", fault.seconds)
            case FaultKind.FULL_DISK:
                return self._fill_disk(fault.seconds)
            case FaultKind.DESCRIPTORS:
                return self._take_handles(fault.seconds)
            case FaultKind.HOSTILE:
                self._add_hostile(fault.seconds)
            case FaultKind.READ_ONLY:
                self._switch(("server", "job-a", "job-b"), READ_ONLY, "on", fault.seconds)
            case FaultKind.CLOCK:
                self.switches["server"].turn(CLOCK, str(int(self.switches["server"].read(CLOCK) or 0) + fault.amount))
            case _:
                self._meddle(fault)
        return True

    def _signal(self, fault: PlannedFault) -> bool:
        number = signal.SIGKILL if fault.kind is FaultKind.KILL else signal.SIGSTOP
        if fault.target in self.children:
            child = self.children[fault.target]
            child.send(number)
            if fault.kind is FaultKind.PAUSE:
                self._after(fault.seconds, lambda: child.send(signal.SIGCONT))
            return True
        return any(self._signal_part(self.children[name], fault, number) for name in ("job-a", "job-b"))

    def _signal_part(self, child: LabChild, fault: PlannedFault, number: signal.Signals) -> bool:
        if not child.is_alive() or not child.send_part(fault.target, number):
            return False
        if fault.kind is FaultKind.PAUSE:
            self._after(fault.seconds, lambda: child.send(signal.SIGCONT))
        return True

    def _cut(self, target: str) -> None:
        if target == "flight":
            for proxy in self.proxies.values():
                proxy.flight.cut()
        else:
            self.proxies[target].cut()

    def _switch(self, names: tuple[str, ...], switch: str, text: str, seconds: float) -> None:
        for name in names:
            self.switches[name].turn(switch, text)
            self._after(seconds, partial(self.switches[name].turn, switch, None))

    def _fill_disk(self, seconds: float) -> bool:
        if self._has_disk:
            fill_disk(self.folder / "data")
            self._after(seconds, partial(empty_disk, self.folder / "data"))
        return self._has_disk

    def _take_handles(self, seconds: float) -> bool:
        server = self.children["server"]
        if not server.is_alive() or not limit_handles(server.pid):
            return False
        self._after(seconds, partial(free_handles, server.pid))
        return True

    def _add_hostile(self, seconds: float) -> None:
        number = self.happened[FaultKind.HOSTILE]
        arguments = [str(self.http_port), str(self.flight_port), str(self.options.seed * 1000 + number), str(seconds)]
        self._add(f"hostile-{number}", "hostile", arguments)

    def _meddle(self, fault: PlannedFault) -> None:
        told = (self.url, self._warehouse, self.options.format, TABLES[fault.target], str(fault.kind))
        work = threading.Thread(target=meddle, args=told, daemon=True)
        self._meddlers.append(work)
        work.start()

    # ---- healing and the end ---------------------------------------------------------------------------------------
    def _heal(self) -> None:
        """Every fault ends. Producers stop, once what they sent is answered."""
        self._armed.clear()
        for switches in self.switches.values():
            switches.disarm()
            for name in (DISK_FULL, READ_ONLY):
                switches.turn(name, None)
        for proxy in self.proxies.values():
            proxy.heal()
        if self._has_disk:
            empty_disk(self.folder / "data")
        free_handles(self.children["server"].pid)
        for name, child in self.children.items():
            if name.startswith("hostile-"):
                child.kill()
        for child in self.children.values():
            child.send(signal.SIGCONT)
        self._wait_server()
        for work in self._meddlers:
            work.join(60)
        for name, child in self.children.items():
            if name.startswith(("log-", "pk-")):
                if not child.is_alive():
                    self.broken.append(f"producer {name} died: {child.last_words(3)}")
                child.stop(90)

    def _settle(self) -> float:
        """Seconds until the lake has everything, with jobs that are started again should they die."""
        began = time.monotonic()
        with connect(self.url) as client:
            ends = {
                path: {str(b): v.end for b, v in client.table(path).bounds().items() if v.end} for path in (LOG, PK)
            }
            try:
                wait_until(
                    lambda: self._caught_up(client, ends),
                    limit_s=CATCH_UP_S,
                    poll_s=0.1,
                    what="the lake to catch up",
                    tolerate=(LakewardError,),
                    state=lambda: self._state(client),
                )
            except TimedOut as error:
                self.say(f"the lake did not catch up: {error}")
                return float("inf")
        return time.monotonic() - began

    def _caught_up(self, client: Client, ends: dict[str, dict[str, int]]) -> bool:
        self._tick(time.monotonic())
        for path, wanted in ends.items():
            body = client.server.ask("GET", routes.COMMITTED.format(table=path))["offsets"]["offsets"]
            committed = {f"{p}/{n}" if p else str(n): o for p, pairs in body.items() for n, o in pairs}
            if any(committed.get(b, 0) < end for b, end in wanted.items()):
                return False
        return True

    def _state(self, client: Client) -> str:
        told = [json.dumps(client.server.ask("GET", routes.TABLE_STATUS.format(table=path))) for path in (LOG, PK)]
        return "\n".join([*told, *(self.children[j].last_words(8) for j in ("job-a", "job-b"))])

    def _finish(self) -> None:
        """Readers have had a last look; jobs leave, so that nothing is in work when files are counted."""
        self.children["reader"].stop(60)
        for name in ("job-a", "job-b"):
            self.children[name].stop(60)

    def _close(self) -> None:
        for child in self.children.values():
            child.send(signal.SIGCONT)
            child.kill()
        if self._has_disk:
            unmount_disk(self.folder / "data")
        for proxy in self.proxies.values():
            with contextlib.suppress(OSError):
                proxy.close()
