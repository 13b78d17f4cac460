# SPDX-License-Identifier: Apache-2.0
"""One play: tables, writers and another engine as a seed draws them, on a whole Lakeward in this process; every engine
that we have reads along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lakeward.client.rows import fit_rows
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TableInfo, TablePath
from lakeward.read.arrow import request_of
from lakeward.verify import verify_table
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.oracle.truth import Key, Row, Truth, difference
from lakeward_testing.oracle.values import TYPES, maybe
from tests.interop.javaiceberg import JavaIceberg
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.kit.iceberg.folder import folder_lake, folder_options
from tests.kit.iceberg.server import serving
from tests.kit.inprocess import InProcessLakeward

PK, LOG = "db.state", "db.events"
BOTH = (PK, LOG)
ENGINES: Mapping[str, Callable[[str], pa.Table]] = {
    "PyIceberg": read_pyiceberg,
    "DuckDB": read_duckdb,
    "DataFusion": read_datafusion,
}
BY_SNAPSHOT = "DataFusion"
"""It plans with the columns of the snapshot and asks for those of the table: until the first round after a column was
added it refuses to read."""
STEPS = {
    "write": 9,
    "write_with_an_old_handle": 3,
    "tier": 5,
    "rewrite": 2,
    "expire": 1,
    "touch": 1,
    "add_column": 1,
    "lose_a_job": 1,
    "restart": 1,
}
"""What may happen next, and how often beside the rest."""
OPENING = ("write", "write", "tier", "add_column", "write_with_an_old_handle", "write", "rewrite", "write", "tier")
"""How every play begins, so that a short one meets the things that matter."""
MOST_ADDED, MOST_PARTITIONS = 3, 12
KEYS = 40
SPARK_EACH = 8
"""Steps for one union read in Spark, the slowest reader: in the opening it meets a tail over rewritten files."""
WAITS, WAIT_S = 5, 400
"""Longer than a lease with its grace, and than any back-off after a few failures."""


class JavaEngine:
    """Java Iceberg in Spark, as a reader and as another engine, on one play's catalog."""

    def __init__(self, java: JavaIceberg, name: str, url: str, folder: Path) -> None:
        self._java, self._name, self._folder = java, name, folder
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": url,
            ".cache-enabled": "false",
        }.items():
            java.sql(f"SET `spark.sql.catalog.{name}{key}`=`{value}`")

    def read(self, metadata_location: str) -> pa.Table:
        return self._java.copy(metadata_location, self._folder)

    def rewrite(self, path: str) -> None:
        if self._java.sql(f"SELECT 1 AS one FROM {self._name}.{path}.snapshots LIMIT 1"):
            arguments = f"table => '{path}', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
            self._java.sql(f"CALL {self._name}.system.rewrite_data_files({arguments})")


class Play:
    """The world, what it must show, and the handles on its tables that writers have kept since the beginning."""

    def __init__(
        self, folder: Path, lake: IcebergLakeStorage, seed: int, java: JavaEngine | None = None, spark: Any = None
    ) -> None:
        self.chance, self.lake, self.clock, self.java, self.spark = Random(seed), lake, ManualClock(), java, spark
        self.world = InProcessLakeward(folder, lake, self.clock)
        self.truth, self.partitions = Truth(), ["p0"]
        has_time = java is None and spark is None
        self.types = [kind for kind in TYPES if has_time or not kind.startswith("TIME(")]
        self.columns = {f"c{n}": kind for n, kind in enumerate(self.types)}
        listed = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        buckets = self.chance.randint(1, 3)
        keyed = f"p STRING NOT NULL, k BIGINT NOT NULL, {listed}"
        self.old = {
            PK: self.world.create(PK, keyed, primary_key="p,k", partition_by="p", buckets=buckets),
            LOG: self.world.create(LOG, f"p STRING NOT NULL, {listed}", partition_by="p", buckets=buckets),
        }

    # ---- steps -----------------------------------------------------------------------------------------------------
    def write(self) -> None:
        self._write({path: self.world.store.load_table(TablePath.parse(path)) for path in BOTH})

    def write_with_an_old_handle(self) -> None:
        """A writer that opened its tables before columns were added: what it does not know stays, or is null."""
        self._write(self.old)

    def tier(self) -> None:
        """Until the lake has everything: a lost job may have left a lease or a back-off to wait for."""
        for path in BOTH:
            for _ in range(WAITS):
                self.world.tier(path)
                with self.world.read(path) as result:
                    if not result.bound.tail_rows:
                        break
                self.clock.advance(WAIT_S)
            else:
                raise AssertionError(f"no round of {path} took place")
        self.check_lake()

    def rewrite(self) -> None:
        """Another engine puts all rows into new files, in another order."""
        if self.java is not None and self.chance.random() < 0.5:
            for path in BOTH:
                self.java.rewrite(path)
        else:
            self._foreign(lambda engine: engine.rewrite(self.chance.randrange(1000)))

    def expire(self) -> None:
        self._foreign(IcebergForeignEngine.expire)

    def touch(self) -> None:
        self._foreign(IcebergForeignEngine.touch)

    def add_column(self) -> None:
        added = len(self.columns) - len(self.types)
        if added < MOST_ADDED:
            name, kind = f"c{len(self.columns)}", self.chance.choice(self.types)
            for path in BOTH:
                self.world.add_column(path, f"{name} {kind}")
            self.columns[name] = kind

    def lose_a_job(self) -> None:
        """It dies between the commit in the lake and its report; another goes on when its lease is over."""
        for path in BOTH:
            self.world.coordinator.ask_now(TablePath.parse(path))
            handed = self.world.take(path)
            if handed is not None:
                with Faults() as faults:
                    faults.arm("round.before-coordinator-commit", times=None)
                    self.world.run(handed)

    def restart(self) -> None:
        self.world.restart()
        self.world.coordinator.lakes.read_unseen()  # a server does so in the background; no round starts before

    # ---- what must hold --------------------------------------------------------------------------------------------
    def check_union(self) -> None:
        for path in BOTH:
            self._same(path, "the union read", self.world.read(path).to_table())

    def check_spark(self) -> None:
        """What `lakeward.spark.read` shows: the lake's files by Spark's own scan, less replaced rows, plus the tail."""
        from lakeward.read.spark.batch import read_frame

        for path in BOTH if self.spark is not None else ():
            frame, opened = read_frame(self.spark, self.world.plugin, request_of(path), self.world.open_lake)
            try:
                self._same(path, "the union read in Spark", frame.toArrow())
            finally:
                opened.close()

    def check_lake(self) -> None:
        """After a round that had everything to take: each engine shows what was written, no more, no less."""
        for path in BOTH:
            if not self._expected(path):
                continue
            table = self.lake.connection.load(TablePath.parse(path))
            self._same(path, "our reader", self._scan(path))
            head = table.metadata.current_snapshot()
            is_behind = head is not None and head.schema_id != table.metadata.current_schema_id
            for name, read in ENGINES.items():
                if not (is_behind and name == BY_SNAPSHOT):
                    self._same(path, name, read(table.metadata_location))
            if self.java is not None:
                self._same(path, "Java Iceberg in Spark", self.java.read(table.metadata_location))

    def check_proof(self) -> None:
        for path in BOTH:
            certificate = verify_table(
                self.world.plugin,
                TablePath.parse(path),
                deep=True,
                clock=self.clock,
                open_storage=lambda _plan: self.lake,
            )
            assert certificate.holds, f"verify --deep of {path}: {certificate.all_findings}"
            compared = sum(bucket.compared for bucket in certificate.buckets)
            assert (certificate.rows, compared) == (len(self._expected(path)),) * 2, f"verify --deep of {path}"

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _write(self, handles: Mapping[str, TableInfo]) -> None:
        if self.chance.random() < 0.3 and len(self.partitions) < MOST_PARTITIONS:
            self.partitions.append(f"p{len(self.partitions)}")
        for _ in range(self.chance.randint(1, 3)):
            if self.chance.random() < 1 / 3:
                self._delete(handles[PK], list({self._key() for _ in range(self.chance.randint(1, 12))}))
            else:
                self._upsert(handles[PK], [self._row(handles[PK], self._key()) for _ in range(self._many())])
        self._append(handles[LOG], [self._row(handles[LOG], self._key()) for _ in range(self._many())])

    def _upsert(self, table: TableInfo, rows: list[Row]) -> None:
        names = table.schema.names
        self.world.put_rows(
            table, fit_rows(rows, table, names), lambda t, b, r: self.world.store.upsert(t, b, r, names)
        )
        self.truth.upsert(rows)

    def _delete(self, table: TableInfo, keys: list[Key]) -> None:
        listed = [{"p": p, "k": k} for p, k in keys]
        self.world.put_rows(table, fit_rows(listed, table, ("p", "k")), self.world.store.delete)
        self.truth.delete(keys)

    def _append(self, table: TableInfo, rows: list[Row]) -> None:
        self.world.put_rows(table, fit_rows(rows, table, table.schema.names), self.world.store.append)
        self.truth.append(rows)

    def _key(self) -> Key:
        """Few keys are most of the traffic, in one or two partitions of all; late rows come for old ones too."""
        skewed = self.chance.random() ** 3
        return self.partitions[-1 - int(len(self.partitions) * skewed)], int(KEYS * self.chance.random() ** 3)

    def _many(self) -> int:
        return self.chance.choice((1, 2, 30))

    def _row(self, table: TableInfo, key: Key) -> Row:
        known = [name for name in table.schema.names if name in self.columns]
        values = {name: maybe(TYPES[self.columns[name]], self.chance) for name in known}
        return {"p": key[0], **({"k": key[1]} if table.is_pk else {}), **values}

    def _expected(self, path: str) -> list[Row]:
        return list(self.truth.state.values()) if path == PK else self.truth.events

    def _same(self, path: str, who: str, shown: pa.Table) -> None:
        names = ["p", *(["k"] if path == PK else []), *self.columns]
        told = difference(self._expected(path), shown.select(names).to_pylist(), names)
        assert not told, f"{path}, {who}:\n{told}"

    def _scan(self, path: str) -> pa.Table:
        table = self.world.store.load_table(TablePath.parse(path))
        reader = self.lake.open_reader(table)
        head = reader.load_base().head
        assert head is not None, f"{path} has rows and no lake snapshot"
        return pa.concat_tables([pa.Table.from_batches([batch]) for batch in reader.scan(head)])

    def _foreign(self, act: Callable[[IcebergForeignEngine], None]) -> None:
        for path in BOTH:
            engine = IcebergForeignEngine(self.lake.connection.catalog, TablePath.parse(path))
            if engine.load().current_snapshot() is not None:
                act(engine)


def run_play(folder: Path, seed: int, steps: int, java: JavaIceberg | None = None, spark: Any = None) -> None:
    """A failure says which seed and step it was. With Java or Spark tables have no TIME, which Spark does not read."""
    with _opened(folder, seed, java, spark) as play:
        drawn = play.chance.choices(list(STEPS), list(STEPS.values()), k=steps)
        for number, name in enumerate((*OPENING, *drawn), start=1):
            checks = [play.check_union, *([play.check_spark] if number % SPARK_EACH == 0 else [])]
            _do(play, seed, f"step {number} ({name})", getattr(play, name), *checks)
        _do(play, seed, "the last round", play.tier, play.check_union, play.check_spark, play.check_proof)


def _do(play: Play, seed: int, what: str, *acts: Callable[[], Any]) -> None:
    try:
        for act in acts:
            act()
    except Exception as error:
        raise AssertionError(f"{what} of --oracle-seed {seed}: {error}") from error


@contextmanager
def _opened(folder: Path, seed: int, java: JavaIceberg | None, spark: Any) -> Iterator[Play]:
    folder.mkdir()
    with ExitStack() as stack:
        lake = stack.enter_context(folder_lake(folder))
        url = None if java is None else stack.enter_context(serving(folder_options(folder)))
        engine = None if java is None or url is None else JavaEngine(java, f"play{seed}", url, folder / "copy")
        play = Play(folder / "server", lake, seed, engine, spark)
        try:
            yield play
        finally:
            play.world.close()
