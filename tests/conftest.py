# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles, the rule that long tests run only when asked for, and what a worker gets to run."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from lakeward_testing.warmprocess import switch_on
from tests.kit.fluss.jars import find_server, fluss_version

pytest_plugins = ["tests.limit", "tests.alone"]

# Derandomized: the same examples on every run, so that a red test is red for everybody. No deadline: the machine may be
# busy.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak", deadline=None, max_examples=1_000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)

LONGEST_FIRST = ("fluss", "spark", "newcomer", "browser", "chaos", "interop", "server", "contract")
"""The order in which workers begin folders; the rest follows, so that all workers end at about the same time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", action="store_true", help="also run tests marked soak, and ten times as many property examples"
    )
    parser.addoption("--oracle-seed", type=int, default=1, help="what tests/oracle draws from; take one of your own")
    parser.addoption(
        "--oracle-minutes", type=float, default=60, help="how long tests/oracle draws seed after seed under --soak"
    )


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 8 << 30


def pytest_configure(config: pytest.Config) -> None:
    switch_on()
    if os.environ.get("TMPDIR") is None and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        # Tests fsync some fifty thousand times: on a disk they wait for it, and show nothing that memory does not.
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="lakeward-tests-", dir=MEMORY)
        Path(tempfile.tempdir).chmod(0o1777)  # as /tmp: tests run servers as another user
        config.add_cleanup(lambda: shutil.rmtree(str(tempfile.tempdir), ignore_errors=True))
    # Tests start some two hundred processes: a server compiles its imports for 2.5 s of CPU where none is stored.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    settings.load_profile("soak" if config.getoption("--soak") else "default")


def pytest_report_header() -> str:
    server = find_server()
    return f"fluss: {fluss_version()}, {'jars not there yet' if server is None else server.name}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests are deselected, not skipped, unless `--soak` or a marker expression asks for them."""
    items.sort(key=rank)
    if config.getoption("--soak") or "soak" in config.getoption("-m"):
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def rank(item: pytest.Item) -> int:
    folder = item.nodeid.split("/")[1]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.shares import ByFile

    config.option.loadscopereorder = False
    return ByFile(config, log)
