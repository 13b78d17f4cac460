# SPDX-License-Identifier: Apache-2.0
"""Builds the jars of a Fluss cluster from a source tree that a person has, by the tree's own Maven wrapper.

The tree is left as it is: a copy without tests is built. Where nothing but the jars is wanted, test libraries and the
test jars of other modules are a quarter of an hour of fetching and compiling; so no pom of the copy asks for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path

from lakeward.errors import InvalidConfig

CLUSTER = ("fluss-server", "fluss-lake/fluss-lake-iceberg")
PAIMON = ("fluss-lake/fluss-lake-paimon",)
"""For clusters whose lake is Paimon. Its module asks for libraries of Paimon that not every repository has."""

JOB = ("fluss-flink/fluss-flink-1.20", "fluss-flink/fluss-flink-tiering")
"""Fluss's own tiering job, which hand-over is tested with."""

_LEFT_OUT = shutil.ignore_patterns(".git", "target", "website", "docker", "helm", "fluss-rust")
_SKIPPED = ("maven.test.skip", "rat.skip", "checkstyle.skip", "spotless.check.skip", "enforcer.skip", "jacoco.skip")
_POM = "{http://maven.apache.org/POM/4.0.0}"


def build_jars(
    tree: Path, folder: Path, modules: Sequence[str] = CLUSTER, say: Callable[[str], None] = lambda _line: None
) -> list[Path]:
    """Ten to fifteen minutes on two cores. The jars lie in `folder` after it. Raises `InvalidConfig`, which names the
    jars that were built before the error: those are kept."""
    if not (tree / "fluss-server" / "pom.xml").exists():
        raise InvalidConfig(where=str(tree), reason="it is no source tree of Apache Fluss")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lakeward-fluss-build-") as made:
        copy = Path(made) / "fluss"
        shutil.copytree(tree, copy, ignore=_LEFT_OUT, symlinks=True)
        for pom in copy.rglob("pom.xml"):
            drop_tests(pom)
        shutil.rmtree(copy / "fluss-lake" / "fluss-lake-iceberg" / "src" / "test", ignore_errors=True)  # never skipped
        log = folder / "build.log"
        say(f"building {', '.join(modules)}: 10 to 15 minutes; Maven's output is in {log}")
        reason = _run(copy, folder / "repository", modules, log)
        taken = [_take(jar, folder) for module in modules for jar in _jars(copy / module)]
        missing = [module for module in modules if not _jars(copy / module)]
        if missing or reason:
            kept = f"kept: {', '.join(j.name for j in taken)}" if taken else "no jar was built"
            what = f"the build left no jar of {', '.join(missing)}" if missing else "the build failed"
            raise InvalidConfig(where=str(tree), reason=f"{what}: {reason or 'Maven made none'}; {kept}; see {log}")
        return taken


def drop_tests(pom: Path) -> None:
    """Takes what only tests need out of a pom's own dependencies, and the making of test jars out of its plugins."""
    ET.register_namespace("", _POM.strip("{}"))
    document = ET.parse(pom)
    for dependencies in document.getroot().findall(f"{_POM}dependencies"):
        for one in dependencies.findall(f"{_POM}dependency"):
            scope, kind = one.findtext(f"{_POM}scope"), one.findtext(f"{_POM}type")
            if scope == "test" or kind == "test-jar" or one.findtext(f"{_POM}artifactId") == "fluss-test-utils":
                dependencies.remove(one)
    for executions in document.getroot().iter(f"{_POM}executions"):
        for one in executions.findall(f"{_POM}execution"):
            if [goal.text for goal in one.iter(f"{_POM}goal")] == ["test-jar"]:
                executions.remove(one)
    document.write(pom, xml_declaration=True, encoding="UTF-8")


def _run(copy: Path, repository: Path, modules: Sequence[str], log: Path) -> str:
    """Why it failed; an empty text when it did not. A module that fails keeps no other from being built."""
    wrapper = copy / "mvnw"
    if not wrapper.exists() and shutil.which("mvn") is None:
        raise InvalidConfig(where="Fluss jars", reason="the tree has no Maven wrapper, and mvn is not installed")
    command = [
        *(["nice", "-n", "10"] if os.name == "posix" else []),
        str(wrapper) if wrapper.exists() else "mvn",
        *("-q", "-B", "--fail-at-end", f"-Dmaven.repo.local={repository}", *(f"-D{name}=true" for name in _SKIPPED)),
        *("-pl", ",".join(modules), "-am", "install"),
    ]
    with log.open("w") as out:
        done = subprocess.run(command, cwd=copy, stdout=out, stderr=subprocess.STDOUT, check=False)
    if not done.returncode:
        return ""
    words = (line.removeprefix("[ERROR]").strip() for line in log.read_text(errors="replace").splitlines())
    lines = [line for line in words if line]
    artifacts = [line for line in lines if "Could not find artifact" in line or "Could not resolve" in line]
    return (artifacts or lines or [f"Maven ended with {done.returncode}"])[0][:400]


def _jars(module: Path) -> list[Path]:
    """The one that the module is for, if it was built."""
    found = sorted((module / "target").glob(f"{module.name}-*.jar"))
    return [jar for jar in found if not jar.stem.endswith(("-sources", "-tests"))][:1]


def _take(jar: Path, folder: Path) -> Path:
    """In one step: a cluster that runs on the jar before it reads that one on."""
    return Path(shutil.copy2(jar, folder / f"{jar.name}.new")).replace(folder / jar.name)
