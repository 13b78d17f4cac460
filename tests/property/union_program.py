# SPDX-License-Identifier: Apache-2.0
"""Random programs on a whole Lakeward beside a dict and a list: what a union read must show after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import SystemClock, TablePath
from lakeward.spi import LakeStorage, load_lake
from lakeward.tiering.work.control import RoundControl
from lakeward_testing.clock import ManualClock
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.faults import Faults
from lakeward_testing.hudiforeign import HudiForeignEngine
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.paimonforeign import PaimonForeignEngine
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.inprocess import InProcessLakeward
from tests.kit.memoryforeign import MemoryForeignEngine

PK, LOG = "db.state", "db.events"
PARTITIONS = ("a", "b")
"""Always there, with the same bucket numbers and offsets; `c` comes when a step first writes to it."""

WAITS, WAIT_S = 5, 400
"""Longer than a lease with its grace, and than any back-off after a few failures."""

Rows = list[dict[str, Any]]
Reader = Callable[[str], Rows]
Step = tuple[str, Any]

partition = st.sampled_from((*PARTITIONS, "c"))
key = st.tuples(partition, st.integers(0, 5))
value = st.text("xyz", max_size=3)
step = st.one_of(
    st.tuples(st.just("upsert"), st.lists(st.tuples(key, value), min_size=1, max_size=4)),
    st.tuples(st.just("partial"), st.lists(st.tuples(key, st.integers(0, 9)), min_size=1, max_size=2)),
    st.tuples(st.just("delete"), st.lists(key, min_size=1, max_size=3)),
    st.tuples(st.just("append"), st.lists(st.tuples(partition, value), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(("tier", "crash", "force", "restart", "add_column", "compact", "expire")), st.none()),
)


def memory_lake(folder: Path) -> LakeStorage:
    return load_lake("memory", {"name": str(folder)})


def iceberg_lake(folder: Path) -> LakeStorage:
    return load_lake(
        "iceberg", {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "warehouse")}
    )


def paimon_lake(folder: Path) -> LakeStorage:
    return load_lake("paimon", {"warehouse": str(folder / "warehouse")})


def delta_lake(folder: Path) -> LakeStorage:
    return load_lake("delta", {"warehouse": str(folder / "warehouse")})


def hudi_lake(folder: Path) -> LakeStorage:
    return load_lake("hudi", {"warehouse": str(folder / "warehouse")})


def lance_lake(folder: Path) -> LakeStorage:
    return load_lake("lance", {"warehouse": str(folder / "warehouse")})


class Program:
    """The world and what it must show."""

    def __init__(self, folder: Path, lake: LakeStorage, **properties: str) -> None:
        self.clock = ManualClock(SystemClock().now_ms())  # orphan removal looks at the age of real files
        self.world = InProcessLakeward(folder, lake, self.clock, quarantine_after=1_000)
        self.state: dict[tuple[str, int], dict[str, Any]] = {}
        self.events: Counter[tuple[Any, ...]] = Counter()
        self.added = 0
        self.world.create(
            PK,
            "p string not null, id bigint not null, v string, w int",
            primary_key="p,id",
            partition_by="p",
            buckets=2,
            **properties,
        )
        self.world.create(LOG, "p string not null, v string", partition_by="p", buckets=2, **properties)
        self.upsert([((p, 0), "x") for p in PARTITIONS])
        self.append([(p, "x") for p in PARTITIONS])

    def run(self, steps: list[Step], read: Reader) -> None:
        """Every step, then a last round; what is read is compared after each."""
        for name, argument in (*steps, ("tier", None)):
            getattr(self, name)(*(() if argument is None else (argument,)))
            self.check(read)

    def check(self, read: Reader) -> None:
        names = ("p", "id", "v", "w", *(f"n{i}" for i in range(self.added)))
        want = [{n: row.get(n) for n in names} for row in self.state.values()]
        assert sorted(read(PK), key=repr) == sorted(want, key=repr)
        assert Counter((r["p"], r["v"]) for r in read(LOG)) == self.events

    def read(self, path: str) -> Rows:
        rows: Rows = self.world.read(path).to_table().to_pylist()
        return rows

    # ---- steps -----------------------------------------------------------------------------------------------------
    def upsert(self, rows: list[tuple[tuple[str, int], str]]) -> None:
        extra = {f"n{i}": i for i in range(self.added)}
        listed: Rows = [{"p": p, "id": i, "v": v, "w": 0, **extra} for (p, i), v in rows]
        self.world.upsert(PK, listed)
        self.state |= {(r["p"], r["id"]): r for r in listed}

    def partial(self, rows: list[tuple[tuple[str, int], int]]) -> None:
        self.world.upsert(PK, [{"p": p, "id": i, "w": w} for (p, i), w in rows], ["p", "id", "w"])
        blank = {"v": None, **{f"n{i}": None for i in range(self.added)}}
        for (p, i), w in rows:
            self.state[p, i] = {**blank, **self.state.get((p, i), {}), "p": p, "id": i, "w": w}

    def delete(self, keys: list[tuple[str, int]]) -> None:
        self.world.delete(PK, [{"p": p, "id": i} for p, i in keys])
        for gone in keys:
            self.state.pop(gone, None)

    def append(self, rows: list[tuple[str, str]]) -> None:
        self.world.append(LOG, [{"p": p, "v": v} for p, v in rows])
        self.events.update(rows)

    def add_column(self) -> None:
        if self.added < 2:
            self.world.add_column(PK, f"n{self.added} int")
            self.state = {k: {**row, f"n{self.added}": None} for k, row in self.state.items()}
            self.added += 1

    def tier(self) -> None:
        """Until the lake has everything: a crash before may have left a lease or a back-off to wait for."""
        for path in (PK, LOG):
            for _ in range(WAITS):
                self.world.tier(path)
                with self.world.read(path) as result:
                    if not result.bound.tail_rows:
                        break
                self.clock.advance(WAIT_S)
            else:
                raise AssertionError(f"no round of {path} took place")

    def crash(self) -> None:
        """The job dies between lake commit and coordinator commit; a new instance goes on later."""
        for path in (PK, LOG):
            self.world.coordinator.ask_now(TablePath.parse(path))
            handed = self.world.take(path)
            if handed is not None:
                with Faults() as faults:
                    faults.arm("round.before-coordinator-commit", times=None)
                    self.world.run(handed)

    def force(self) -> None:
        """A round that is told to finish at once: it commits what it has, or nothing."""
        for path in (PK, LOG):
            self.world.coordinator.ask_now(TablePath.parse(path))
            handed = self.world.take(path)
            if handed is not None:
                control = RoundControl()
                control.force()
                self.world.run(handed, control)

    def restart(self) -> None:
        self.world.restart()
        self.world.coordinator.lakes.read_unseen()  # a server does so in the background; no round starts before

    def compact(self) -> None:
        """Another engine rewrites all files, in another order."""
        for path in (PK, LOG):
            self._foreign(path, "compact", "rewrite")

    def expire(self) -> None:
        """Another engine drops every snapshot but head and tag."""
        for path in (PK, LOG):
            self._foreign(path, "expire", "expire")

    def _foreign(self, path: str, in_memory: str, in_iceberg: str) -> None:
        lake, name = self.world.lake, TablePath.parse(path)
        reader = lake.open_reader(self.world.store.load_table(name))
        if reader.load_snapshot() is None:
            return
        if isinstance(lake, MemoryLakeStorage):
            getattr(MemoryForeignEngine(lake.lake, name), in_memory)()
        elif isinstance(lake, IcebergLakeStorage):
            catalog = lake.connection.catalog
            if in_iceberg == "rewrite" and catalog.load_table(str(name)).format_version > 2:
                MergeOnReadEngine(catalog, name).rewrite()  # stock PyIceberg writes no manifests of version 3
            else:
                getattr(IcebergForeignEngine(catalog, name), in_iceberg)()
        elif isinstance(lake, PaimonLakeStorage):
            getattr(PaimonForeignEngine(lake.connection, name), in_memory)()
        elif isinstance(lake, DeltaLakeStorage):
            engine = DeltaForeignEngine(lake.log(name))
            {"compact": engine.optimize, "expire": engine.clean_log}[in_memory]()
        elif isinstance(lake, HudiLakeStorage):
            hudi = HudiForeignEngine(lake.table(name))
            {"compact": hudi.compact, "expire": hudi.archive}[in_memory]()
        else:
            from lakeward.lake.lance.storage import LanceLakeStorage
            from lakeward_testing.lanceforeign import LanceForeignEngine

            assert isinstance(lake, LanceLakeStorage)
            library = LanceForeignEngine(lake.table(name))
            {"compact": library.compact, "expire": library.clean_up}[in_memory]()
