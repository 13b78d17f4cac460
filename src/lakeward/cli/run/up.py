# SPDX-License-Identifier: Apache-2.0
"""`lakeward up`: the server and one local job, supervised, for one machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from lakeward.cli.output import note
from lakeward.cli.run.children import Child, choose_port, wait_for_file
from lakeward.cli.run.watchdog import PATIENCE_S, Watchdog, answers
from lakeward.client.options import READY, STARTING, server_of
from lakeward.config import options, resolve
from lakeward.errors import DataFolderLocked
from lakeward.model import StopSignal, SystemClock

SLOTS = 2
"""A machine that does all of it is small: fewer than the four of a job by itself."""
RESTART_FIRST_S, RESTART_CEILING_S = 1.0, 30.0
LOST_GRACE_S = 10.0
STEADY_S = 60.0
"""A child that ran for so long starts again at once when it ends."""


def register(app: typer.Typer) -> None:
    app.command("up")(up)


def up(
    data: Annotated[
        Path | None, typer.Option(help="The data folder; made when it is not there. [server.data-dir]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The HTTP port; another free one when it is taken. [server.port]"),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Rounds at the same time. [tiering.slots, else 2]")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master of the job. [tiering.master]")] = None,
    format: Annotated[
        str | None, typer.Option(help="The lake format: iceberg, paimon, delta, lance, hudi; else what is configured.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="The job's pool, and that of tables which name none; hudi has Hudi's own code.")
    ] = None,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="The data folder is an older copy (a restored backup says so itself)."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say the address as JSON on standard output once it is up.")
    ] = False,
) -> None:
    """Runs the server and one tiering job on this machine until Ctrl-C. A child that dies is started again.

    What is not given comes from lakeward.toml and the environment.

    Example: lakeward up --data ./lakeward-data"""
    stop = StopSignal()
    if pool is not None:
        _check_pool(pool)
    config = resolve()
    data = data or Path(config.get(options.SERVER_DATA_DIR))
    port = port or config.get(options.SERVER_PORT)
    supervisor = Supervisor(data, choose_port(port), slots, master, lake=format, pool=pool, restored=restored)
    try:
        url = supervisor.start()
        if supervisor.port != port:
            here = f", or by themselves in {Path.cwd()}" if data == Path(config.get(options.SERVER_DATA_DIR)) else ""
            note(f"port {port} is taken: commands find this server by --server {url}{here}")
        note(f"Lakeward is up: {url} (dashboard), data in {data}; Ctrl-C stops it")
        note("its job is starting: Spark needs some seconds; rows can be written and read meanwhile")
        if as_json:
            print(json.dumps({"url": url, "data": str(data)}), flush=True)
        while not stop.wait(1.0):
            supervisor.watch()
    finally:
        supervisor.stop()


def _check_pool(pool: str) -> None:
    """A job that cannot start would be started again for ever. Raises `SparkUnsupported`, `BundleNotFound`."""
    from lakeward.tiering.job.session import load_hudi

    load_hudi(pool)


def _slots() -> int:
    config = resolve()
    return config.get(options.TIERING_SLOTS) if config.is_set(options.TIERING_SLOTS) else SLOTS


def _flight_setting() -> list[str]:
    """A free port, unless file or environment name one."""
    return [] if resolve().is_set(options.SERVER_FLIGHT_PORT) else ["--flight-port", "0"]


def _lake_setting(asked: str | None) -> list[str]:
    """The requested lake; else Iceberg, unless file or environment name a lake format, or lakes."""
    config = resolve()
    if asked is None and (config.get(options.DATALAKE_FORMAT) is not None or config.below("lakes.")):
        return []
    return ["--set", f"{options.DATALAKE_FORMAT.key}={asked or 'iceberg'}"]


class Supervisor:
    """Server first, then the job; stopped the other way round."""

    def __init__(
        self,
        data: Path,
        port: int,
        slots: int | None,
        master: str | None,
        *,
        job_name: str = "local",
        patience_s: float = PATIENCE_S,
        lake: str | None = None,
        pool: str | None = None,
        restored: bool = False,
    ) -> None:
        self.data, self.port = data, port
        ready = data / READY
        logs = data / "logs"
        self.ready = ready
        serve = [
            "server",
            "--data",
            str(data),
            "--port",
            str(port),
            *_flight_setting(),
            "--ready-file",
            str(ready),
            *_lake_setting(lake),
            *([] if pool is None else ["--set", f"{options.TABLE_DATALAKE_POOL.key}={pool}"]),
            *(["--restored"] if restored else []),
        ]
        self.server = Child("server", serve, logs / "server.log")
        self.url = f"http://127.0.0.1:{port}"
        job = ["tier", "--server", self.url, "--name", job_name, "--slots", str(slots or _slots())]
        job += [] if master is None else ["--master", master]
        job += [] if pool is None else ["--pool", pool]
        self.job = Child("job", job, logs / "job.log")
        self._watchdog = Watchdog(lambda limit_s: answers(self.url, limit_s), SystemClock(), patience_s)
        self._lost_grace_s = min(LOST_GRACE_S, patience_s)
        self._started: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def start(self) -> str:
        """The server's URL once it answers. Raises `DataFolderLocked` where one runs on the folder already: commands
        go on finding that one."""
        if (running := server_of(self.data)) is not None:
            raise DataFolderLocked(folder=str(self.data), holder=f"the server at {running}")
        self.data.mkdir(parents=True, exist_ok=True)
        self.ready.unlink(missing_ok=True)
        starting = self.data / STARTING
        starting.write_text(str(os.getpid()))
        try:
            self._launch(self.server)
            wait_for_file(self.ready, self.server)
        finally:
            starting.unlink(missing_ok=True)
        self._launch(self.job)
        return self.url

    def watch(self) -> None:
        """Starts again what died, with growing pauses while it keeps dying, and a server that stopped answering."""
        if self.server.exit_code is None and self._watchdog.is_lost():
            note(f"the server runs and does not answer any more; ending it (log: {self.server.log})")
            self.server.stop(self._lost_grace_s)
        now = time.monotonic()
        for child in (self.server, self.job):
            if child.exit_code is None:
                continue
            if child.name not in self._due:
                steady = now - self._started[child.name] > STEADY_S
                pause = 0.0 if steady else self._pause.get(child.name, RESTART_FIRST_S)
                self._pause[child.name] = RESTART_FIRST_S if steady else min(pause * 2, RESTART_CEILING_S)
                self._due[child.name] = now + pause
                note(
                    f"the {child.name} ended with code {child.exit_code}; starting it again in {pause:.0f} s (log: "
                    f"{child.log})"
                )
            elif now >= self._due[child.name]:
                del self._due[child.name]
                self._launch(child)

    def stop(self) -> None:
        self.job.stop()
        self.server.stop()

    def _launch(self, child: Child) -> None:
        self._started[child.name] = time.monotonic()
        if child is self.server:
            self._watchdog.launched()
        child.start()
