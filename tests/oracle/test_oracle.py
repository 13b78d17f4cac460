# SPDX-License-Identifier: Apache-2.0
"""Whatever a seed draws, every reader shows what was written: no row wrong, lost or doubled."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pytest

from tests.interop.javaiceberg import start_java
from tests.oracle.play import run_play

PARTS = 6
"""An hour in pieces: none comes near the limit of a long test."""


def test_every_reader_shows_what_was_written(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    run_play(tmp_path / "play", pytestconfig.getoption("oracle_seed"), steps=4)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_for_an_hour(tmp_path: Path, pytestconfig: pytest.Config, part: int) -> None:
    """Play after play, each with the next seed; Java Iceberg in Spark reads every other one, and rewrites there."""
    first: int = pytestconfig.getoption("oracle_seed")
    until = time.monotonic() + 60 * pytestconfig.getoption("oracle_minutes") / PARTS
    with start_java("http://127.0.0.1:9") as java:
        for seed in count(first + 1_000_000 * part + 1):
            run_play(tmp_path / str(seed), seed, steps=40, java=java if seed % 2 else None)
            if time.monotonic() >= until:
                return
