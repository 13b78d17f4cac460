# SPDX-License-Identifier: Apache-2.0
"""The live warehouse of a real server with real jobs, which are killed, read after every step by engines on and off
the JVM, against a dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.interop.javaiceberg import start_java
from tests.interop.trino import start_trino
from tests.oracle.livelab import LiveLab
from tests.oracle.test_live import TABLES, Play, Read, Readers, Row, sorted_rows
from tests.oracle.test_live_engines import VERSION_2

pytestmark = pytest.mark.soak


@contextmanager
def jvm_readers(folder: Path, url: str) -> Iterator[Mapping[str, Read]]:
    """Spark with Java Iceberg and Trino, each with the URL and the warehouse alone."""
    (folder / "trino").mkdir()
    with start_java(url, "live") as spark, start_trino(folder / "trino", url, "live") as trino:

        def read_spark(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted_rows(spark.sql(f"SELECT {', '.join(columns)} FROM lake.db.{name}"), columns)

        def read_trino(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted(map(tuple, trino.sql(f"SELECT {', '.join(columns)} FROM lake.db.{name}")), key=str)

        yield {"Spark": read_spark, "Trino": read_trino}


@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
@pytest.mark.parametrize(
    ("seed", "tables"), [*((seed, tuple(TABLES)) for seed in range(31, 35)), *((seed, VERSION_2) for seed in (35, 36))]
)
def test_five_engines_read_live_while_server_and_jobs_are_killed(
    tmp_path: Path, seed: int, tables: Sequence[str]
) -> None:
    """Two seeds read tables of version 2 alone, which Trino reads at every step."""
    steps, compared = 500, Counter[str]()
    with ExitStack() as stack:
        lab = stack.enter_context(closing(LiveLab(tmp_path / "lab", seed)))
        play, readers = Play(lab, seed), stack.enter_context(closing(Readers(lab.url)))
        engines = {**readers.all(), **stack.enter_context(jvm_readers(tmp_path, lab.url))}
        for number in range(steps):
            done = play.step()
            name = play.random.choice(tables)
            for engine, read in engines.items():
                if engine == "Trino" and name not in VERSION_2:
                    continue
                assert read(name, play.columns(name)) == play.expected(name), f"{engine} after step {number}: {done}"
                compared[engine] += 1
        print(f"seed {seed}: {steps} steps, compared {dict(compared)}, faults {dict(lab.faults)}")
    assert lab.faults["kill server"] > 0
