# SPDX-License-Identifier: Apache-2.0
"""Which Fluss a cluster for tests is made of: the version asked for, and jars of one's own build."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import InvalidConfig
from tests.kit.fluss.build import build_jars, drop_tests
from tests.kit.fluss.jars import SERVER, cache_folder, find_server, load_jars

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>
<dependency><artifactId>fluss-common</artifactId></dependency>
<dependency><artifactId>fluss-common</artifactId><type>test-jar</type></dependency>
<dependency><artifactId>fluss-test-utils</artifactId></dependency>
<dependency><artifactId>curator-test</artifactId><scope>test</scope></dependency>
</dependencies><build><plugins><plugin><executions>
<execution><goals><goal>test-jar</goal></goals></execution><execution><goals><goal>shade</goal></goals></execution>
</executions></plugin></plugins></build></project>"""


def make(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_the_version_chooses_folder_and_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEWARD_FLUSS_JARS", raising=False)
    monkeypatch.delenv("FLUSS_VERSION", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "lakeward" / "fluss" / "0.9.1-incubating"
    monkeypatch.setenv("FLUSS_VERSION", "1.0.0")
    assert cache_folder() == tmp_path / "lakeward" / "fluss" / "1.0.0"
    monkeypatch.setenv("FLUSS_VERSION", "2.0")
    with pytest.raises(InvalidConfig, match=r"'2.0' is not one of 0.9.1, 1.0.0"):
        cache_folder()


def test_jars_of_ones_own_build_are_taken_by_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEWARD_FLUSS_JARS", str(tmp_path))
    monkeypatch.setenv("FLUSS_VERSION", "1.0.0")
    make(tmp_path, "fluss-server-0.9.1-incubating.jar", "fluss-server-1.0-SNAPSHOT.jar")
    assert load_jars(SERVER[:1]) == [tmp_path / "fluss-server-1.0-SNAPSHOT.jar"]
    make(tmp_path, "fluss-server-1.0.0.jar")  # a release goes before what one built
    assert find_server() == tmp_path / "fluss-server-1.0.0.jar"
    monkeypatch.setenv("FLUSS_VERSION", "0.9.1")
    assert find_server() == tmp_path / "fluss-server-0.9.1-incubating.jar"


def test_a_pom_without_its_tests(tmp_path: Path) -> None:
    (tmp_path / "pom.xml").write_text(POM)
    drop_tests(tmp_path / "pom.xml")
    left = (tmp_path / "pom.xml").read_text()
    assert left.count("<artifactId>") == 1
    assert "test" not in left
    assert "shade" in left


def test_a_folder_that_is_no_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no source tree of Apache Fluss"):
        build_jars(tmp_path, tmp_path / "jars")
