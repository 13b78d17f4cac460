# SPDX-License-Identifier: Apache-2.0
"""The jars of a Fluss cluster and of Fluss's own Flink job: fetched once through mvn, kept outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lakeward.errors import InvalidConfig

VERSION = "0.9.1-incubating"
_LOG4J = "2.25.2"
SERVER = (
    f"org.apache.fluss:fluss-server:{VERSION}",
    f"org.apache.logging.log4j:log4j-api:{_LOG4J}",
    f"org.apache.logging.log4j:log4j-core:{_LOG4J}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}",
)
ICEBERG = (
    f"org.apache.fluss:fluss-lake-iceberg:{VERSION}",
    "io.trino.hadoop:hadoop-apache:3.3.5-2",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
S3 = (f"org.apache.fluss:fluss-fs-s3:{VERSION}",)
"""Remote storage on S3, as a plugin of the servers."""

FLINK = (
    f"org.apache.fluss:fluss-flink-tiering:{VERSION}",
    f"org.apache.fluss:fluss-flink-1.20:{VERSION}",
)
_FLINK_VERSION = "1.20.3"
_FLINK_PARTS = ("flink-clients", "flink-connector-base", "flink-table-runtime", "flink-table-api-java-bridge")
_COPY_ALL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_INSTALL = "org.apache.maven.plugins:maven-install-plugin:3.1.2:install-file"
_PARENTS = ("fluss-lake", "fluss-flink", "fluss-filesystems")
"""Parent descriptors that some mirrors lack. An empty one does: the jars are whole, nothing is inherited that is
needed.
"""

_FETCH_LIMIT_S = 900.0
_MVN_LIMIT_S = 600.0


def cache_folder() -> Path:
    """`LAKEWARD_FLUSS_JARS`, else a folder below the user's cache."""
    chosen = os.environ.get("LAKEWARD_FLUSS_JARS")
    return (
        Path(chosen)
        if chosen
        else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lakeward" / "fluss" / VERSION
    )


def load_jars(artifacts: Iterable[str], folder: Path | None = None, limit_s: float = _FETCH_LIMIT_S) -> list[Path]:
    """Local paths of these artifacts, in order; what is missing is fetched. Raises `InvalidConfig` when it cannot be
    had in that time.
    """
    folder = folder or cache_folder()
    wanted = [folder / _name(a) for a in artifacts]
    missing = [a for a, path in zip(artifacts, wanted, strict=True) if not path.exists()]
    if missing:
        _fetch(missing, folder, time.monotonic() + limit_s)
    return wanted


def load_flink(folder: Path | None = None) -> list[Path]:
    """Flink's own jars with all that they need, enough to run a job in one Java process. Raises `InvalidConfig`."""
    folder = folder or cache_folder()
    target = folder / f"flink-{_FLINK_VERSION}"
    if not (target / ".whole").exists():
        project = folder / "flink-project"
        project.mkdir(parents=True, exist_ok=True)
        parts = "".join(
            f"<dependency><groupId>org.apache.flink</groupId><artifactId>{p}</artifactId><version>{_FLINK_VERSION}</version></dependency>"
            for p in _FLINK_PARTS
        )
        own = (
            "<modelVersion>4.0.0</modelVersion><groupId>lakeward</groupId><artifactId>flink</artifactId>"
            "<version>1</version>"
        )
        (project / "pom.xml").write_text(
            f"<project>{own}<packaging>pom</packaging><dependencies>{parts}</dependencies></project>"
        )
        _mvn(
            folder / "repository",
            _COPY_ALL,
            "-f",
            str(project / "pom.xml"),
            f"-DoutputDirectory={target}",
            "-DincludeScope=runtime",
        )
        (target / ".whole").touch()
    return sorted(target.glob("*.jar"))


def _name(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def _fetch(artifacts: Sequence[str], folder: Path, until: float) -> None:
    if shutil.which("mvn") is None:
        raise InvalidConfig(
            where="Fluss jars", reason=f"mvn is not installed, and {folder} lacks {', '.join(map(_name, artifacts))}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    repository = folder / "repository"
    for parent in _PARENTS:
        if not (repository / f"{parent}-parent.xml").exists():
            _install_parent(parent, repository)
    for artifact in artifacts:
        left_s = max(1.0, until - time.monotonic())
        _mvn(repository, _COPY, f"-Dartifact={artifact}:jar", f"-DoutputDirectory={folder}", limit_s=left_s)


def _install_parent(name: str, repository: Path) -> None:
    repository.mkdir(parents=True, exist_ok=True)
    descriptor = repository / f"{name}-parent.xml"
    coordinates = f"<groupId>org.apache.fluss</groupId><artifactId>{name}</artifactId><version>{VERSION}</version>"
    descriptor.write_text(
        f"<project><modelVersion>4.0.0</modelVersion>{coordinates}<packaging>pom</packaging></project>"
    )
    _mvn(repository, _INSTALL, f"-Dfile={descriptor}", f"-DpomFile={descriptor}", "-Dpackaging=pom")


def _mvn(repository: Path, goal: str, *arguments: str, limit_s: float = _MVN_LIMIT_S) -> None:
    command = ["mvn", "-q", "-B", f"-Dmaven.repo.local={repository}", goal, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise InvalidConfig(
            where="Fluss jars", reason=f"{' '.join(command)} took longer than {limit_s:.0f} s"
        ) from error
    if done.returncode:
        raise InvalidConfig(
            where="Fluss jars", reason=f"{' '.join(command)}: {(done.stdout + done.stderr).strip()[:500]}"
        )
