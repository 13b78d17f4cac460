# SPDX-License-Identifier: Apache-2.0
"""Jars from a source tree of Fluss: by the tree's own Maven wrapper, here one that does what a test wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import InvalidConfig
from tests.kit.fluss.build import CLUSTER, JOB, build_jars

MISSING = "[ERROR] Could not find artifact org.apache.paimon:paimon-flink-1.20:jar:1.4.2"


def make_tree(folder: Path, script: str) -> Path:
    (folder / "fluss-server").mkdir(parents=True)
    (folder / "fluss-server" / "pom.xml").write_text("<project/>")
    (folder / "mvnw").write_text(f"#!/bin/sh\nset -e\n{script}\n")
    (folder / "mvnw").chmod(0o755)
    return folder


def build(module: str) -> str:
    name = module.rpartition("/")[2]
    jars = " ".join(f"{module}/target/{name}-1.0{kind}.jar" for kind in ("", "-sources", "-tests"))
    return f"mkdir -p {module}/target; touch {jars}"


def test_what_was_built_before_an_error_is_kept(tmp_path: Path) -> None:
    script = "\n".join([*map(build, CLUSTER), "echo fetching", f"echo '{MISSING}'", "exit 1"])
    said: list[str] = []
    with pytest.raises(InvalidConfig) as failed:
        build_jars(make_tree(tmp_path / "tree", script), tmp_path / "jars", (*CLUSTER, *JOB), said.append)
    assert "flink-tiering: Could not find artifact" in failed.value.message
    assert "kept: fluss-server-1.0.jar, fluss-lake-iceberg-1.0.jar" in failed.value.message
    assert str(tmp_path / "jars" / "build.log") in said[0]
    found = {jar.name for jar in (tmp_path / "jars").glob("*.jar")}
    assert found == {"fluss-server-1.0.jar", "fluss-lake-iceberg-1.0.jar"}


def test_a_build_that_leaves_no_jar_says_so(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", build(CLUSTER[0]))
    with pytest.raises(InvalidConfig, match=f"the build left no jar of {CLUSTER[1]}"):
        build_jars(tree, tmp_path / "jars")
