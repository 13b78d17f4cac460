# SPDX-License-Identifier: Apache-2.0
"""Hudi's jar: named by the user, taken from the cache, or fetched through an mvn that is made here."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lakeward.errors import BundleNotFound
from lakeward.lake.hudi.sparkbundle import VARIABLE, bundle_jar, find_bundle

JAR = "hudi-spark3.5-bundle_2.12-1.2.0.jar"
FAILING = "#!/bin/sh\necho '[ERROR] nobody answers' >&2\nexit 1\n"
TAMPERED = f"""#!/bin/sh
for argument do
    case $argument in -DoutputDirectory=*) echo other > "${{argument#*=}}/{JAR}" ;; esac
done
"""


def world(folder: Path, mvn: str) -> dict[str, str]:
    program = folder / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(mvn)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}


def test_a_file_that_is_named_is_taken(tmp_path: Path) -> None:
    jar = tmp_path / "mine.jar"
    jar.touch()
    assert bundle_jar({VARIABLE: str(jar)}) == jar == find_bundle({VARIABLE: str(jar)})


def test_a_name_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleNotFound, match=f"{VARIABLE} names .*gone.jar, which is not a file"):
        bundle_jar({VARIABLE: str(tmp_path / "gone.jar")})


def test_what_was_fetched_once_is_not_fetched_again(tmp_path: Path) -> None:
    environment = world(tmp_path, FAILING)
    assert find_bundle(environment) is None
    jar = tmp_path / "cache" / "lakeward" / "hudi" / JAR
    jar.parent.mkdir(parents=True)
    jar.touch()
    assert bundle_jar(environment) == jar


def test_a_fetch_that_fails_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        BundleNotFound, match=f"nobody answers; install mvn .* or copy the jar here and name it in {VARIABLE}"
    ):
        bundle_jar(world(tmp_path, FAILING))


def test_another_jar_than_the_known_one_is_refused_and_not_kept(tmp_path: Path) -> None:
    environment = world(tmp_path, TAMPERED)
    with pytest.raises(BundleNotFound, match="the fetched file has checksum"):
        bundle_jar(environment)
    assert find_bundle(environment) is None
    assert not list((tmp_path / "cache" / "lakeward" / "hudi").glob("**/*.jar"))
