# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL of one's own: initdb below a folder, on a free port, with logical replication. `python -m
tests.kit.postgres up|down` keeps one for people."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg2

from lakeward_testing.ports import free_port

START_LIMIT_S = 120.0


def find_binaries() -> Path | None:
    """The newest installation that Debian's packages or PATH have."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if installed:
        return installed[-1].parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).resolve().parent


class Postgres:
    """`settings` are lines of postgresql.conf."""

    def __init__(self, folder: Path, port: int | None = None, settings: dict[str, str] | None = None) -> None:
        binaries = find_binaries()
        assert binaries is not None, "PostgreSQL is not installed (apt install postgresql)"
        self.binaries, self.folder, self.port = binaries, folder, port or free_port()
        self.data = folder / "data"
        self.url = f"postgresql://lakeward@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        if not self.data.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._hand_over(folder)
            self._run("initdb", "-D", str(self.data), "-U", "lakeward", "-A", "trust", "-E", "UTF8", "--no-sync")
            lines = {
                "wal_level": "logical",
                "fsync": "off",
                "max_wal_size": "'2GB'",
                "unix_socket_directories": f"'{folder}'",
                "listen_addresses": "'127.0.0.1'",
                "wal_sender_timeout": "'60s'",
                **(settings or {}),
            }
            with (self.data / "postgresql.conf").open("a") as file:
                file.writelines(f"{key} = {value}\n" for key, value in lines.items())

    def start(self) -> Postgres:
        """Also right after `kill`: one whose children have not ended yet refuses to start at first."""
        until = time.monotonic() + START_LIMIT_S
        while not self._start_once(until):
            time.sleep(0.2)
        return self

    def _start_once(self, until: float) -> bool:
        command = self._as_user([str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)])
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while True:
            try:
                self.connect().close()
                return True
            except psycopg2.OperationalError:
                if time.monotonic() > until:
                    raise
                if self._process.poll() is not None:
                    return False
                time.sleep(0.05)

    def connect(self, database: str = "postgres") -> Any:
        connection = psycopg2.connect(self.url.replace("/postgres", f"/{database}"))
        connection.autocommit = True
        return connection

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Each on its own; the rows of the last."""
        connection = self.connect(database)
        rows: list[tuple[Any, ...]] = []
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                    rows = list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()
        return rows

    def kill(self) -> None:
        """As a power cut: every process of it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        if number is signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            os.kill(int((self.data / "postmaster.pid").read_text().splitlines()[0]), number)
        process.wait(60)
        if number is signal.SIGKILL:
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _hand_over(self, folder: Path) -> None:
        """PostgreSQL refuses to run as root: its own user gets the folder, and a way to it."""
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
            for above in folder.resolve().parents:
                if above.stat().st_mode & 0o001 == 0 and above != Path("/"):
                    above.chmod(above.stat().st_mode | 0o001)

    def _as_user(self, command: list[str]) -> list[str]:
        return (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
            if os.geteuid() == 0
            else command
        )

    def _run(self, name: str, *arguments: str) -> None:
        command = self._as_user([str(self.binaries / name), *arguments])
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr


def main() -> int:
    folder = Path(os.environ.get("LAKEWARD_POSTGRES", Path.home() / ".cache" / "lakeward" / "postgres-dev"))
    pid = folder / "data" / "postmaster.pid"
    if sys.argv[1:] == ["down"]:
        if pid.exists():
            os.kill(int(pid.read_text().splitlines()[0]), signal.SIGINT)
        shutil.rmtree(folder, ignore_errors=True)
        print("stopped and removed")
        return 0
    server = Postgres(folder, port=int(os.environ.get("PORT", "5439")))
    print(f"{server.start().url}, wal_level = logical, in {folder}; `make postgres-down` removes it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
