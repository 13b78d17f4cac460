# SPDX-License-Identifier: Apache-2.0
"""The oracle on a real server and real jobs: what `lakeward oracle` runs, for a moment in `make test`, and for an hour,
with engines on a JVM, in the soak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeward.config.cache import cache_folder
from lakeward_testing.oracle.engines.base import Engines
from lakeward_testing.oracle.run import OracleOptions, OracleReport, run_oracle
from tests.interop.javaiceberg import start_delta, start_java
from tests.interop.test_paimon_java import LIMIT_S, PARENTS, VERSIONS
from tests.kit.fluss.jars import load_jars
from tests.oracle.jvm import add_delta_spark, add_java_iceberg, add_java_paimon

FORMATS = ("iceberg", "paimon", "delta", "lance", "hudi")


def play(folder: Path, options: OracleOptions, extend: Callable[[Engines], None] | None = None) -> OracleReport:
    said: list[str] = []
    report = run_oracle(folder, options, said.append, extend)
    assert not report.difference, "\n".join([*said, report.replay])
    assert report.rows > 0
    return report


def test_a_moment(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The seed says which format it is."""
    seed: int = pytestconfig.getoption("oracle_seed")
    play(tmp_path / "lab", OracleOptions(seed=seed, seconds=5, format=FORMATS[seed % len(FORMATS)]))


@pytest.mark.soak
@pytest.mark.parametrize("format", FORMATS)
def test_each_format(tmp_path: Path, pytestconfig: pytest.Config, format: str) -> None:
    """Together as long as `--oracle-minutes` says."""
    seed, minutes = pytestconfig.getoption("oracle_seed"), pytestconfig.getoption("oracle_minutes")
    play(tmp_path / "lab", OracleOptions(seed=seed, seconds=60 * minutes / len(FORMATS), format=format))


@pytest.mark.soak
def test_java_iceberg_reads_and_changes_tables(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    with start_java("http://127.0.0.1:9") as java:
        options = OracleOptions(seed=pytestconfig.getoption("oracle_seed"), seconds=300)
        report = play(tmp_path / "lab", options, lambda engines: add_java_iceberg(engines, java, tmp_path))
    assert report.readers["Java Iceberg"] > 0


@pytest.mark.soak
def test_delta_spark_reads_and_changes_tables(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    with start_delta() as java:
        options = OracleOptions(seed=pytestconfig.getoption("oracle_seed"), seconds=300, format="delta")
        report = play(tmp_path / "lab", options, lambda engines: add_delta_spark(engines, java, tmp_path))
    assert report.readers["delta-spark"] > 0


@pytest.mark.soak
def test_java_paimon_reads_and_changes_tables(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (jar,) = load_jars(VERSIONS[:1], cache_folder() / "java-paimon", LIMIT_S, PARENTS)
    options = OracleOptions(seed=pytestconfig.getoption("oracle_seed"), seconds=300, format="paimon")
    report = play(tmp_path / "lab", options, lambda engines: add_java_paimon(engines, jar))
    assert report.readers["Java Paimon"] > 0
