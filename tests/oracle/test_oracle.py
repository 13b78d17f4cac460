# SPDX-License-Identifier: Apache-2.0
"""Whatever a seed draws, every reader shows what was written: no row wrong, lost or doubled."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakeward.tiering.job.session import SessionOptions, open_session
from tests.interop.javaiceberg import start_java
from tests.oracle.play import run_play
from tests.spark.conftest import FEW_ROWS

PARTS = 6
"""An hour in pieces: none comes near the limit of a long test."""


def test_every_reader_shows_what_was_written(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    run_play(tmp_path / "play", pytestconfig.getoption("oracle_seed"), steps=4)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning")  # Py4J leaves sockets
@pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning")  # to the garbage collector
@pytest.mark.parametrize("part", range(PARTS))
def test_for_an_hour(tmp_path: Path, pytestconfig: pytest.Config, part: int) -> None:
    """Play after play, each with the next seed. Java Iceberg in Spark reads every third one, and rewrites there; our
    union read in Spark reads the one after it."""
    first: int = pytestconfig.getoption("oracle_seed")
    until = time.monotonic() + 60 * pytestconfig.getoption("oracle_minutes") / PARTS
    with start_java("http://127.0.0.1:9") as java, started_spark() as spark:
        for turn, seed in enumerate(count(first + 1_000_000 * part + 1)):
            engines: dict[str, Any] = {"java": java} if turn % 3 == 0 else {"spark": spark} if turn % 3 == 1 else {}
            run_play(tmp_path / str(seed), seed, steps=40, **engines)
            if time.monotonic() >= until:
                return


@contextmanager
def started_spark() -> Iterator[Any]:
    spark = open_session(SessionOptions(master="local[2]", archive=False, conf=FEW_ROWS)).spark
    try:
        yield spark
    finally:
        spark.stop()
        gc.collect()
