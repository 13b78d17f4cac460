# SPDX-License-Identifier: Apache-2.0
"""Starts and stops a Fluss cluster on free ports of this machine; its lake is an Iceberg catalog in SQLite, or a folder
of Paimon tables.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.config.java import load_java
from lakeward.errors import FlussError, InvalidConfig, ServerUnavailable, TimedOut
from lakeward.hot.fluss.wire.connection import Credentials
from lakeward.hot.fluss.wire.messages import METADATA
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward_testing.waiting import wait_until
from tests.kit.fluss.jars import ICEBERG, S3, SERVER, load_jars, paimon_plugin

_ZOOKEEPER = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
_COORDINATOR = "org.apache.fluss.server.coordinator.CoordinatorServer"
_TABLET = "org.apache.fluss.server.tablet.TabletServer"
_OPENS = (
    "java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED",
    "java.base/java.nio=ALL-UNNAMED",
    "java.base/java.lang=ALL-UNNAMED",
)
_MEMORY = {"zookeeper": ("128m", "64m"), "coordinator": ("384m", "256m"), "tablet": ("768m", "768m")}
"""Heap and direct memory."""

_LOG4J = """rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.name = out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{2} - %m%n
"""
_INTERNAL = "internal-"
_START_LIMIT_S = 240.0
"""A Java process that starts in seconds took longer than 90 s on a machine with a load of 75."""

_STOP_LIMIT_S = 20.0

TEST_SETTINGS: Mapping[str, str] = {
    "kv.snapshot.interval": "5s",
    "log.segment.file-size": "1mb",
    "remote.log.task-interval-duration": "2s",
    "zookeeper.client.session-timeout": "12s",
}
"""Small and quick, so that a test sees KV snapshots and remote segments within seconds. ZooKeeper keeps a killed
server's place until its session ends: a coordinator that comes after it waits for that, by default 40 s.
"""


@dataclass(kw_only=True)
class FlussCluster:
    """One folder holds everything: data, logs, the catalog, and `cluster.json` with ports and process ids.

    `login`: clients must log in as this user (SASL PLAIN); servers talk among themselves on listeners of their own."""

    home: Path
    tablets: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    login: Credentials | None = None
    lake: str = "iceberg"
    processes: dict[str, int] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports['coordinator']}"

    @property
    def catalog_uri(self) -> str:
        """For PyIceberg's SQL catalog; Fluss itself is told the same file through JDBC."""
        return f"sqlite:///{self.home / 'catalog.db'}"

    @property
    def jdbc_uri(self) -> str:
        """The same file for Java. Its driver gives up on a lock after 3 s by default, and three processes share the
        file.
        """
        return f"jdbc:sqlite:{self.home / 'catalog.db'}?busy_timeout=30000&journal_mode=WAL"

    @property
    def warehouse(self) -> Path:
        return self.home / "warehouse"

    @property
    def lake_settings(self) -> dict[str, str]:
        """For the servers, and for Fluss's own tiering job."""
        if self.lake == "paimon":
            own = {"metastore": "filesystem"}
        else:
            own = {"type": "jdbc", "uri": self.jdbc_uri, "jdbc.schema-version": "V1"}
        named = {f"datalake.{self.lake}.{key}": value for key, value in own.items()}
        return {"datalake.format": self.lake, **named, f"datalake.{self.lake}.warehouse": str(self.warehouse)}

    def start(self) -> FlussCluster:
        """Fetches jars where need be. Raises `InvalidConfig`, `JavaNotFound`, `TimedOut` with the end of the log."""
        self.home = self.home.resolve()
        for folder in ("logs", "zookeeper"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        self._install(self.lake, paimon_plugin() if self.lake == "paimon" else ICEBERG)
        if self.settings.get("remote.data.dir", "").startswith("s3"):
            self._install("s3", S3)
        (self.home / "log4j2.properties").write_text(_LOG4J)
        self.ports = self.ports or _free_ports([*self._names(), *(_INTERNAL + n for n in self._names())])
        try:
            for name in self._names():
                self.start_process(name)
            self.wait_ready()
        except BaseException:  # nobody else knows what runs by now
            self.stop()
            raise
        return self

    def _install(self, plugin: str, artifacts: Sequence[str]) -> None:
        folder = self.home / "plugins" / plugin
        folder.mkdir(parents=True, exist_ok=True)
        for jar in load_jars(artifacts):
            if not (folder / jar.name).exists():
                (folder / jar.name).symlink_to(jar)

    def wait_ready(self) -> None:
        """Until the coordinator knows every tablet server: tables cannot be made before."""
        servers = FlussServers(self.bootstrap, credentials=self.login)
        try:
            wait_until(
                lambda: len(servers.call_any(METADATA, {}).get("tablets", [])) >= self.tablets,
                limit_s=_START_LIMIT_S,
                poll_s=0.1,
                what="Fluss's tablet servers are registered",
                tolerate=(ServerUnavailable, FlussError),
            )
        finally:
            servers.close()

    def start_process(self, name: str) -> None:
        """One of `zookeeper`, `coordinator`, `tablet-N`: also to bring back one that was killed, on its old port."""
        kind = name.partition("-")[0]
        main, arguments = self._main(name, kind)
        heap, direct = _MEMORY[kind]
        command = [
            str(load_java().home / "bin" / "java"),
            f"-Xmx{heap}",
            f"-XX:MaxDirectMemorySize={direct}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # they live for minutes: the second compiler costs more than it brings
            *(f"--add-opens={o}" for o in _OPENS),
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, load_jars(SERVER))),
            main,
            *arguments,
        ]
        with (self.home / "logs" / f"{name}.log").open("ab") as log:
            env = {**os.environ, "FLUSS_PLUGINS_DIR": str(self.home / "plugins")}
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env,
                cwd=self.home,
                start_new_session=True,
            )
        self.processes[name], self._children[name] = process.pid, process
        self._save()
        self._wait_for_port(name, process)

    def kill(self, name: str) -> None:
        """As a crash would."""
        self._end(name, signal.SIGKILL)
        self._save()

    def stop(self) -> None:
        """Safe to repeat; ends only processes that this cluster started."""
        for name in sorted(
            self.processes, key=lambda n: ("tablet", "coordinator", "zookeeper").index(n.partition("-")[0])
        ):
            self._end(name, signal.SIGTERM)
        self._save()

    @classmethod
    def load(cls, home: Path) -> FlussCluster:
        """A cluster that an earlier process started."""
        file = home.resolve() / "cluster.json"
        if not file.exists():
            raise InvalidConfig(where=str(home), reason="no Fluss cluster was started there")
        body = json.loads(file.read_text())
        return cls(
            home=home.resolve(),
            tablets=body["tablets"],
            settings=body["settings"],
            lake=body.get("lake", "iceberg"),
            processes=body["processes"],
            ports=body["ports"],
        )

    @classmethod
    def find_running(cls, home: Path) -> FlussCluster | None:
        """The cluster that an earlier process started there, if its coordinator still listens."""
        if not (home.resolve() / "cluster.json").exists():
            return None
        cluster = cls.load(home)
        return cluster if cluster.processes and _listens(cluster.ports["coordinator"]) else None

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _names(self) -> list[str]:
        return ["zookeeper", "coordinator", *(f"tablet-{n}" for n in range(self.tablets))]

    def _main(self, name: str, kind: str) -> tuple[str, list[str]]:
        if kind == "zookeeper":
            file = self.home / "zoo.cfg"
            limits = "maxClientCnxns=0\nadmin.enableServer=false\ntickTime=2000\n"
            where = f"dataDir={self.home / 'zookeeper'}\nclientPort={self.ports[name]}\nclientPortAddress=127.0.0.1\n"
            file.write_text(where + limits)
            return _ZOOKEEPER, [str(file)]
        folder = self.home / f"conf-{name}"
        folder.mkdir(exist_ok=True)
        settings = {**self._settings(name), **self.settings}
        (folder / "server.yaml").write_text("".join(f"{k}: {v}\n" for k, v in settings.items()))
        return (_COORDINATOR if kind == "coordinator" else _TABLET), ["--configDir", str(folder)]

    def _settings(self, name: str) -> dict[str, str]:
        shared = {
            "zookeeper.address": f"127.0.0.1:{self.ports['zookeeper']}",
            "remote.data.dir": str(self.home / "remote"),
            **self._listeners(name),
            **self.lake_settings,
        }
        if not name.startswith("tablet"):
            return shared
        return {**shared, "tablet-server.id": name.partition("-")[2], "data.dir": str(self.home / f"data-{name}")}

    def _listeners(self, name: str) -> dict[str, str]:
        if self.login is None:
            return {"bind.listeners": f"FLUSS://127.0.0.1:{self.ports[name]}"}
        module = "org.apache.fluss.security.auth.sasl.plain.PlainLoginModule"
        return {
            "bind.listeners": f"FLUSS://127.0.0.1:{self.ports[_INTERNAL + name]},CLIENT://127.0.0.1:{self.ports[name]}",
            "internal.listener.name": "FLUSS",
            "security.protocol.map": "CLIENT:SASL,FLUSS:PLAINTEXT",
            "security.sasl.enabled.mechanisms": "PLAIN",
            "security.sasl.plain.jaas.config": f'{module} required user_{self.login.user}="{self.login.password}";',
        }

    def _wait_for_port(self, name: str, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < until:
            if _listens(self.ports[name]):
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        end = (self.home / "logs" / f"{name}.log").read_text(errors="replace")[-2000:]
        raise TimedOut(what=f"start of Fluss's {name}", limit_s=_START_LIMIT_S, state=end)

    def _end(self, name: str, how: signal.Signals) -> None:
        """A child of this process is reaped; one of an earlier process is waited for."""
        pid, child = self.processes.pop(name), self._children.pop(name, None)
        if child is None:
            return _end(pid, how)
        child.send_signal(how)
        try:
            child.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(_STOP_LIMIT_S)

    def _save(self) -> None:
        body = {
            "processes": self.processes,
            "ports": self.ports,
            "tablets": self.tablets,
            "settings": dict(self.settings),
            "lake": self.lake,
        }
        (self.home / "cluster.json").write_text(json.dumps(body, indent=1))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(names: Sequence[str]) -> dict[str, int]:
    """Below the range from which the system takes ports for connections: none of those gets in between."""
    ports: dict[str, int] = {}
    while len(ports) < len(names):
        port = secrets.choice(range(15_000, 32_000))
        with socket.socket() as probe:
            if port not in ports.values() and probe.connect_ex(("127.0.0.1", port)) != 0:
                ports[names[len(ports)]] = port
    return ports


def _end(pid: int, how: signal.Signals) -> None:
    until = time.monotonic() + _STOP_LIMIT_S
    try:
        os.kill(pid, how)
        while True:
            os.kill(pid, signal.SIGKILL if time.monotonic() > until else 0)
            time.sleep(0.05)
    except ProcessLookupError:
        return
