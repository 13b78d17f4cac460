# SPDX-License-Identifier: Apache-2.0
"""The jars of a Fluss cluster and of Fluss's own Flink job: fetched once through mvn, or built from a source tree, and
kept outside the repository. `FLUSS_VERSION` says which Fluss.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lakeward.errors import InvalidConfig

VERSIONS = {"0.9.1": "0.9.1-incubating", "1.0.0": "1.0.0"}
"""As people say it -> as its artifacts are called. The first is the default."""

_LOG4J = "2.25.2"
SERVER = (
    "org.apache.fluss:fluss-server",
    f"org.apache.logging.log4j:log4j-api:{_LOG4J}",
    f"org.apache.logging.log4j:log4j-core:{_LOG4J}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}",
)
ICEBERG = (
    "org.apache.fluss:fluss-lake-iceberg",
    "io.trino.hadoop:hadoop-apache:3.3.5-2",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
_PAIMON_OF = {"0.9.1": "1.3.1", "1.0.0": "1.4.2"}
"""Fluss -> the Paimon that it is built with. Writers of Fluss 0.9.1 on a newer one delete what they wrote."""

S3 = ("org.apache.fluss:fluss-fs-s3",)
"""Remote storage on S3, as a plugin of the servers."""

FLINK = (
    "org.apache.fluss:fluss-flink-tiering",
    "org.apache.fluss:fluss-flink-1.20",
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


def fluss_version() -> str:
    """`FLUSS_VERSION`, else the oldest that is supported. Raises `InvalidConfig`."""
    chosen = os.environ.get("FLUSS_VERSION") or next(iter(VERSIONS))
    if chosen not in VERSIONS:
        raise InvalidConfig(where="FLUSS_VERSION", reason=f"{chosen!r} is not one of {', '.join(VERSIONS)}")
    return chosen


def paimon_plugin() -> tuple[str, ...]:
    """Artifacts of Fluss's Paimon lake, for the version that was chosen. Raises `InvalidConfig`."""
    bundle = f"org.apache.paimon:paimon-bundle:{_PAIMON_OF[fluss_version()]}"
    return ("org.apache.fluss:fluss-lake-paimon", bundle, "io.trino.hadoop:hadoop-apache:3.3.5-2")


def cache_folder() -> Path:
    """`LAKEWARD_FLUSS_JARS`, else a folder of this version below the user's cache."""
    chosen = os.environ.get("LAKEWARD_FLUSS_JARS")
    below = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lakeward" / "fluss"
    return Path(chosen) if chosen else below / VERSIONS[fluss_version()]


def find_server(folder: Path | None = None) -> Path | None:
    """The server's jar, whose name says which build runs."""
    path = _find(folder or cache_folder(), SERVER[0])
    return path if path.exists() else None


def load_jars(
    artifacts: Iterable[str],
    folder: Path | None = None,
    limit_s: float = _FETCH_LIMIT_S,
    parents: Sequence[str] | None = None,
) -> list[Path]:
    """Local paths of these artifacts, in order; what is missing is fetched. `parents`: descriptors that a mirror may
    lack, those of Fluss where none are named. Raises `InvalidConfig` when it cannot be had in that time.
    """
    folder = folder or cache_folder()
    missing = [a for a in artifacts if not _find(folder, a).exists()]
    if missing:
        own = [f"org.apache.fluss:{name}:{VERSIONS[fluss_version()]}" for name in _PARENTS]
        _fetch(missing, folder, time.monotonic() + limit_s, own if parents is None else parents)
    return [_find(folder, a) for a in artifacts]


def load_flink(folder: Path | None = None) -> list[Path]:
    """Flink's own jars with all that they need, enough to run a job in one Java process. Raises `InvalidConfig`."""
    parts = [f"org.apache.flink:{part}:{_FLINK_VERSION}" for part in _FLINK_PARTS]
    return load_with_needs(f"flink-{_FLINK_VERSION}", parts, folder or cache_folder())


def load_with_needs(name: str, artifacts: Sequence[str], folder: Path) -> list[Path]:
    """These artifacts with all that they need at run time, below `folder/name`; fetched once. Raises
    `InvalidConfig`."""
    target = folder / name
    if not (target / ".whole").exists():
        project = folder / f"{name}-project"
        project.mkdir(parents=True, exist_ok=True)
        (project / "pom.xml").write_text(_project(name, artifacts))
        into = (f"-DoutputDirectory={target}", "-DincludeScope=runtime")
        _mvn(folder / "repository", _COPY_ALL, "-f", str(project / "pom.xml"), *into)
        (target / ".whole").touch()
    return sorted(target.glob("*.jar"))


def _project(name: str, artifacts: Sequence[str]) -> str:
    parts = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in artifacts
    )
    own = f"<groupId>lakeward</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>"
    return f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{parts}</dependencies></project>"


def _whole(artifact: str) -> str:
    """Fluss's own have the version that was chosen."""
    return artifact if artifact.count(":") == 2 else f"{artifact}:{VERSIONS[fluss_version()]}"


def _name(artifact: str) -> str:
    _, name, version = _whole(artifact).split(":")
    return f"{name}-{version}.jar"


def _find(folder: Path, artifact: str) -> Path:
    """Where it is or will be. A build of one's own may call itself `1.0-SNAPSHOT`."""
    exact = folder / _name(artifact)
    if exact.exists() or artifact.count(":") == 2:
        return exact
    series = fluss_version().rpartition(".")[0]
    return next(iter(sorted(folder.glob(f"{artifact.partition(':')[2]}-{series}[.-]*.jar"))), exact)


def _fetch(artifacts: Sequence[str], folder: Path, until: float, parents: Sequence[str]) -> None:
    if shutil.which("mvn") is None:
        raise InvalidConfig(
            where="Fluss jars", reason=f"mvn is not installed, and {folder} lacks {', '.join(map(_name, artifacts))}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    repository = folder / "repository"
    for parent in parents:
        _install_parent(parent, repository)
    for artifact in artifacts:
        left_s = max(1.0, until - time.monotonic())
        _mvn(repository, _COPY, f"-Dartifact={_whole(artifact)}:jar", f"-DoutputDirectory={folder}", limit_s=left_s)


def _install_parent(parent: str, repository: Path) -> None:
    group, name, version = parent.split(":")
    descriptor = repository / f"{name}-parent.xml"
    if descriptor.exists():
        return
    repository.mkdir(parents=True, exist_ok=True)
    coordinates = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    descriptor.write_text(
        f"<project><modelVersion>4.0.0</modelVersion>{coordinates}<packaging>pom</packaging></project>"
    )
    _mvn(repository, _INSTALL, f"-Dfile={descriptor}", f"-DpomFile={descriptor}", "-Dpackaging=pom")


def _mvn(repository: Path, goal: str, *arguments: str, limit_s: float = _MVN_LIMIT_S) -> None:
    command = ["mvn", "-q", "-B", f"-Dmaven.repo.local={repository}", goal, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise InvalidConfig(
            where="Fluss jars", reason=f"{' '.join(command)} took longer than {limit_s:.0f} s"
        ) from error
    if done.returncode:
        raise InvalidConfig(
            where="Fluss jars", reason=f"{' '.join(command)}: {(done.stdout + done.stderr).strip()[:500]}"
        )
