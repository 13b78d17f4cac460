# SPDX-License-Identifier: Apache-2.0
"""Every thread that a server works with in the background: each has a heartbeat, and nothing but the stop ends it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lakeward.config import resolve
from lakeward.protocol.routes import API, METRICS, READY
from lakeward.server.process import LakewardServer
from lakeward_testing.waiting import wait_until

PASSING = ("AnyIO worker thread", "asyncio_", "ThreadPoolExecutor", "flight-call", "flight-refusal")
"""Made for calls, and ended with them."""


@pytest.fixture
def before() -> set[threading.Thread]:
    return set(threading.enumerate())


@pytest.fixture
def server(tmp_path: Path, before: set[threading.Thread]) -> Iterator[LakewardServer]:
    arguments = {
        "server.data-dir": str(tmp_path / "data"),
        "server.port": "0",
        "server.flight-port": "0",
        "datalake.format": "iceberg",
        "log.fsync.interval": "100 ms",
        "coordinator.tick": "50 ms",
        "coordinator.maintenance.interval": "100 ms",
        "coordinator.orphan.interval": "100 ms",
    }
    server = LakewardServer(resolve(environment={}, arguments=arguments))
    server.start()
    yield server
    server.stop()


def background(before: set[threading.Thread]) -> dict[str, threading.Thread]:
    return {t.name: t for t in threading.enumerate() if t not in before and not t.name.startswith(PASSING)}


def still(server: LakewardServer) -> list[str]:
    names: list[str] = httpx.get(server.url + READY, timeout=120).json()["still"]
    return names


def shown(server: LakewardServer) -> set[str]:
    lines = httpx.get(server.url + METRICS, timeout=120).text.splitlines()
    return {line.split('"')[1] for line in lines if "background" in line.lower() and "{thread=" in line}


def test_every_background_thread_has_a_heartbeat_and_survives_what_would_end_it(
    server: LakewardServer, before: set[threading.Thread]
) -> None:
    threads = background(before)
    assert shown(server) | {"http"} == set(threads), "a thread without a heartbeat, or a heartbeat without one"
    assert len(threads) >= 7
    for name, thread in threads.items():
        if name not in ("http", "flight"):  # the process ends with them
            assert thread.ident is not None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    httpx.get(f"{server.url}{API}/status", timeout=120).raise_for_status()
    for name in threads:
        wait_until(lambda name=name: background(before)[name].is_alive() and name not in still(server))  # type: ignore[misc]


def test_a_server_whose_http_ended_says_so(server: LakewardServer) -> None:
    assert server.is_serving
    assert server._http is not None
    server._http.stop(30)
    wait_until(lambda: not server.is_serving)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_whose_flight_ended_says_so(server: LakewardServer, before: set[threading.Thread]) -> None:
    serving = background(before)["flight"]
    assert serving.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(serving.ident), ctypes.py_object(SystemExit))
    wait_until(lambda: not server.is_serving)
    assert still(server) == ["flight"]
