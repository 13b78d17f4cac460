# SPDX-License-Identifier: Apache-2.0
"""What tests against a Fluss cluster look at: the log's ends, what Fluss knows of the lake, the lake's rows by other
engines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.errors import FlussError, InvalidInput, LakeUnavailable, NotFound, ServerUnavailable, TimedOut
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.hot.fluss.tables import partition_ids
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import PARTITION_SEPARATOR, OffsetMap, TableInfo, TablePath
from lakeward.spi import load_lake
from lakeward_testing.waiting import wait_until
from tests.fluss.steps import DATABASE, LIMIT_S, Append, DropTable, MakePartition, MakeTable, Step, Unfinished, produce
from tests.kit.fluss.cluster import FlussCluster
from tests.kit.iceberg.engines import read_duckdb

SYSTEM = ["__bucket", "__offset", "__timestamp"]
STALE = "SQLITE_BUSY_SNAPSHOT"
"""The coordinator reads the catalog's file in a transaction that it never ends: once another process has written to
the file, it can make no lake table any more."""

LEADERS_S = 20.0
"""A new table has its leaders within a second or two."""


class ThreadJob:
    """A tiering job in a process of its own, on threads in place of Spark. `faults` arms fault points in it."""

    def __init__(
        self, bootstrap: str, name: str, *, slots: int = 4, faults: str | None = None, user: str | None = None
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.fluss.threadjob",
            "--fluss",
            bootstrap,
            "--name",
            name,
            "--slots",
            str(slots),
        ]
        command += [] if user is None else ["--user", user]
        env = {**os.environ, **({} if faults is None else {"LAKEWARD_FAULTS": faults})}
        self._log = tempfile.NamedTemporaryFile(prefix=f"job-{name}-", suffix=".log")  # noqa: SIM115 - lives as long as the job
        self.process = subprocess.Popen(command, env=env, stdout=self._log, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def stop(self) -> None:
        """Clean: rounds end, tables are given back."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_dead(60)

    def wait_dead(self, limit_s: float) -> None:
        """One that outlives the limit fails the test, and is killed all the same."""
        try:
            self.process.wait(limit_s)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(120)
        self._log.close()


class FlussWorld:
    def __init__(self, cluster: FlussCluster, *, login: tuple[str, str] | None = None) -> None:
        self.cluster = cluster
        self.login = login
        self.plugin = FlussPlugin({"bootstrap": cluster.bootstrap, **({} if login is None else {"user": login[0]})})

    def close(self) -> None:
        self.plugin.store().close()

    def produce(self, *steps: Step, limit_s: int = LIMIT_S) -> list[Any]:
        """pyfluss hangs now and then: then once more with the steps that are left, the one in work only if it had no
        effect.
        """
        before = {s.table: self._written(s.table) for s in steps if isinstance(s, Append)}
        try:
            answers = produce(self.cluster.bootstrap, *steps, limit_s=limit_s, login=self.login)
            self._wait_led(steps)
            return answers
        except Unfinished as hung:
            done, rest = hung.answers, steps[len(hung.answers) :]
            if STALE in str(hung):
                self._restart_coordinator()
            self._wait_led(steps[: len(done) + 1])
            appended = sum(
                s.count
                for s in steps[: len(done)]
                if isinstance(s, Append) and isinstance(rest[0], Append) and s.table == rest[0].table
            )
            if self._has_happened(rest[0], before, appended, hung):
                done, rest = [*done, None], rest[1:]
            return [*done, *produce(self.cluster.bootstrap, *rest, limit_s=limit_s, login=self.login)] if rest else done

    def _wait_led(self, steps: Sequence[Step]) -> None:
        """Fluss 0.9.1's coordinator can miss that a table or a partition was made: then nothing of it gets a leader,
        and clients wait for ever. A restart mends it.
        """
        names = {s.name if isinstance(s, MakeTable) else s.table for s in steps if not isinstance(s, DropTable)}
        for name in sorted(names - {s.table for s in steps if isinstance(s, DropTable)}):
            try:
                self._wait_leaders(name, LEADERS_S)
            except TimedOut:
                self._restart_coordinator()
                self._wait_leaders(name, 90.0)

    def _restart_coordinator(self) -> None:
        self.cluster.kill("coordinator")
        self.cluster.start_process("coordinator")
        self.cluster.wait_ready()

    def _wait_leaders(self, name: str, limit_s: float) -> None:
        away = (ServerUnavailable, FlussError)
        wait_until(lambda: self._is_led(name), limit_s=limit_s, what=f"leaders of {name}", tolerate=away)

    def _is_led(self, name: str) -> bool:
        with suppress(NotFound, InvalidInput):  # not made yet, or none that is tiered
            self.ends(name)
        return True

    def _has_happened(self, step: Step, before: Mapping[str, int], appended: int, hung: Unfinished) -> bool:
        """Upserts and deletes that are repeated change nothing; rows appended again would be there twice."""
        match step:
            case MakeTable():
                return TablePath(DATABASE, step.name) in self.plugin.store().list_tables()
            case MakePartition():
                return PARTITION_SEPARATOR.join(step.spec.values()) in partition_ids(self.table(step.table))
            case Append():
                new = self._written(step.table) - before[step.table] - appended
                if new not in (0, step.count):
                    raise hung
                return new > 0
        return False

    def _written(self, name: str) -> int:
        try:
            return sum(self.ends(name).values())
        except NotFound:
            return 0

    def table(self, name: str) -> TableInfo:
        return self.plugin.store().load_table(TablePath(DATABASE, name))

    def ends(self, name: str) -> OffsetMap:
        return OffsetMap(
            {b: found.end for b, found in self.plugin.store().freeze(self.table(name)).items() if found.end}
        )

    def committed(self, name: str) -> OffsetMap:
        return self.plugin.coordinator().committed(TablePath(DATABASE, name)).offsets

    def wait_tiered(self, name: str, limit_s: float = 100.0) -> OffsetMap:
        """Until Fluss says that the lake has everything written so far. On a busy machine; no dead job's lease ends
        meanwhile."""
        ends = self.ends(name)
        wait_until(
            lambda: not OffsetMap(ends).regressions(self.committed(name)),
            limit_s=limit_s,
            poll_s=0.1,
            what=f"{name} tiered up to {ends}",
            tolerate=(ServerUnavailable, LakeUnavailable),
        )
        return ends

    def lake(self, name: str) -> IcebergLakeStorage:
        lake = load_lake(*self.plugin.lake_options(self.table(name)))
        assert isinstance(lake, IcebergLakeStorage)
        return lake

    def writers(self, name: str) -> set[str]:
        """Whose rounds are in the lake table."""
        reader = load_lake(*self.plugin.lake_options(self.table(name))).open_reader(self.table(name))
        return {s.job or "flink" for s in reader.snapshots()}

    def compactions(self, name: str) -> int:
        """Snapshots of ours that merged files."""
        reader = load_lake(*self.plugin.lake_options(self.table(name))).open_reader(self.table(name))
        return sum(s.rewrite_id is not None for s in reader.snapshots())

    def metadata(self, name: str) -> str:
        """The newest metadata file of the lake table: what other engines are pointed at."""
        lake = self.lake(name)
        try:
            return lake.connection.load(TablePath(DATABASE, name)).metadata_location
        finally:
            lake.connection.close()

    def is_being_written(self, name: str) -> bool:
        """A round has begun to write files of the table."""
        return any((self.cluster.warehouse / DATABASE / name / "data").rglob("*.parquet"))

    def rows(self, name: str) -> pa.Table:
        """The lake's rows as DuckDB reads them. Tables of Fluss 1.0 have no system columns: those are what our own
        reader tells, whose rows are DuckDB's.
        """
        found = read_duckdb(self.metadata(name))
        if set(SYSTEM) <= set(found.column_names):
            return found
        table, lake = self.table(name), self.lake(name)
        try:
            reader = lake.open_reader(table)
            head = reader.load_snapshot()
            assert head is not None
            batches = list(reader.scan(head.snapshot_id, columns=[*found.column_names, *SYSTEM]))
        finally:
            lake.connection.close()
        rows = pa.Table.from_batches(batches) if batches else found
        assert sorted(map(repr, rows.select(found.column_names).to_pylist())) == sorted(map(repr, found.to_pylist()))
        return rows

    def by_key(self, name: str, key: str = "id") -> dict[Any, Mapping[str, Any]]:
        """Key -> row without system columns; a key that is there twice fails."""
        whole = self.rows(name)
        rows = whole.drop_columns([c for c in SYSTEM if c in whole.column_names]).to_pylist()
        found = {r[key]: r for r in rows}
        assert len(found) == len(rows), f"{name} has a key twice"
        return found
