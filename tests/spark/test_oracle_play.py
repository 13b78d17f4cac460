# SPDX-License-Identifier: Apache-2.0
"""The union read in Spark shows what an oracle's play has written: wide types, old handles, a foreign rewrite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.play import run_play

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]


@pytest.mark.soak
def test_spark_shows_what_was_written(tmp_path: Path, pytestconfig: pytest.Config, spark: Any) -> None:
    run_play(tmp_path / "play", pytestconfig.getoption("oracle_seed"), steps=0, spark=spark)
