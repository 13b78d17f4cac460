# SPDX-License-Identifier: Apache-2.0
"""Hudi's own code on Spark: its jar, fetched once for each user of a machine, and the settings of a session."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lakeward.config.cache import cache_folder
from lakeward.config.java import use_java
from lakeward.errors import BundleNotFound, JavaNotFound, SparkUnsupported

SPARK = "3.5"
"""The series of Spark that a bundle exists for."""

VERSION = "1.2.0"
ARTIFACT = f"org.apache.hudi:hudi-spark{SPARK}-bundle_2.12:{VERSION}"
SHA256 = "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676"
VARIABLE = "LAKEWARD_HUDI_BUNDLE"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_LIMIT_S = 600.0
"""80 MB, and some 10 MB of mvn's own plugins."""


def bundle_jar(environment: Mapping[str, str] | None = None) -> Path:
    """Returns the file in `LAKEWARD_HUDI_BUNDLE`, else the one below the user's cache, which is fetched if missing.
    Blocks while it fetches (about 20 s); a second process waits for the first. Safe to repeat; a crash leaves no
    incomplete jar under its name. Raises `BundleNotFound`."""
    variables = os.environ if environment is None else environment
    if named := variables.get(VARIABLE):
        if not Path(named).is_file():
            raise BundleNotFound(artifact=ARTIFACT, reason=f"{VARIABLE} names {named}, which is not a file")
        return Path(named)
    folder = cache_folder(variables) / "hudi"
    return find_bundle(variables) or _fetch(folder, variables)


def find_bundle(environment: Mapping[str, str] | None = None) -> Path | None:
    """Returns its path without fetching it."""
    variables = os.environ if environment is None else environment
    named = variables.get(VARIABLE)
    path = Path(named) if named else cache_folder(variables) / "hudi" / _name()
    return path if path.is_file() else None


def _name() -> str:
    _, name, version = ARTIFACT.split(":")
    return f"{name}-{version}.jar"


def _fetch(folder: Path, environment: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / _name()
    with _alone(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as place:
        if not target.exists():
            os.replace(_checked(_load(Path(place), environment)), target)
    return target


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _load(place: Path, environment: Mapping[str, str]) -> Path:
    """Fetches it with mvn, whose settings have mirrors; else with Spark's resolver for `spark.jars.packages`."""
    command = _mvn(place, environment) or _spark(place, environment)
    if command is None:
        raise BundleNotFound(artifact=ARTIFACT, reason="neither mvn nor PySpark is there to fetch it")
    ended = _run(command, environment)
    jar = next(place.glob(f"**/*{_name()}"), None)
    if jar is None:
        raise BundleNotFound(artifact=ARTIFACT, reason=f"{' '.join(command)}: {ended.strip()[-500:]}")
    return jar


def _mvn(place: Path, environment: Mapping[str, str]) -> list[str] | None:
    mvn = shutil.which("mvn", path=environment.get("PATH", ""))
    if mvn is None:
        return None
    into = (f"-Dmaven.repo.local={place / 'repository'}", f"-DoutputDirectory={place}")
    return [mvn, "-q", "-B", _COPY, f"-Dartifact={ARTIFACT}:jar", *into]


def _spark(place: Path, environment: Mapping[str, str]) -> list[str] | None:
    """Starts an empty program with Spark, which resolves packages before."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    program = place / "nothing.py"
    program.touch()
    submit = Path(spec.origin).parent / "bin" / "spark-submit"
    return [
        str(submit),
        "--master",
        "local[1]",
        "--packages",
        ARTIFACT,
        "--conf",
        f"spark.jars.ivy={place}",
        str(program),
    ]


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    """Returns the command's output. Its exit code does not matter: afterwards the jar either exists or not."""
    try:
        variables = {**environment, "JAVA_HOME": str(use_java(dict(environment)).home)}
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=variables
        )
    except (OSError, JavaNotFound) as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"took longer than {_LIMIT_S:.0f} s"
    return done.stdout + done.stderr


def _checked(jar: Path) -> Path:
    with jar.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise BundleNotFound(artifact=ARTIFACT, reason=f"the fetched file has checksum {found}, not {SHA256}")
    return jar


POOL = "hudi"
"""The pool whose jobs have Hudi's own code in their session."""

INSTALL = "python3.11 -m venv hudi-pool && hudi-pool/bin/pip install 'lakeward[hudi-pool]'"
START = f"hudi-pool/bin/lakeward tier --pool {POOL}"
"""As docs/install.md has it."""

JARS = "spark.jars"
EXTENSIONS = "spark.sql.extensions"


def spark_conf(jar: Path) -> dict[str, str]:
    """Returns settings of a session with Hudi. Pure."""
    return {
        JARS: str(jar),
        EXTENSIONS: "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.memory": "2g",
    }


def check_spark(pyspark_version: str) -> None:
    """Raises `SparkUnsupported` for a PySpark without a bundle of Hudi. Pure."""
    if ".".join(re.findall(r"\d+", pyspark_version)[:2]) != SPARK:
        raise SparkUnsupported(
            what=f"pool {POOL} on PySpark {pyspark_version}",
            reason=f"Hudi's own code exists for PySpark {SPARK} alone, which has an environment of its own: {INSTALL}, "
            f"then {START}; rounds of Hudi tables run on this PySpark too, in a job of another pool",
        )
