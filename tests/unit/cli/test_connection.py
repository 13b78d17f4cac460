# SPDX-License-Identifier: Apache-2.0
"""Commands and `connect()` find the server of the folder they are called in, unless told where to go."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakeward
from lakeward.cli.connection import open_server
from lakeward.client.options import READY, STARTING, is_starting, server_of


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEWARD_SERVER", raising=False)
    (tmp_path / "lakeward-data").mkdir()
    return tmp_path / "lakeward-data"


def test_the_server_of_this_folder_is_found(here: Path, listening: int) -> None:
    (here / READY).write_text(f"http://127.0.0.1:{listening}\n")
    assert open_server(None).url == f"http://127.0.0.1:{listening}"
    assert open_server("http://127.0.0.1:1").url == "http://127.0.0.1:1"
    with lakeward.connect() as near, lakeward.connect("http://127.0.0.1:1") as far:
        assert (near.server.url, far.server.url) == (f"http://127.0.0.1:{listening}", "http://127.0.0.1:1")


def test_the_server_of_the_folder_that_the_settings_name_is_found(here: Path, listening: int) -> None:
    Path("lakeward.toml").write_text('server.data-dir = "rows"')
    Path("rows").mkdir()
    Path("rows", READY).write_text(f"http://127.0.0.1:{listening}")
    assert open_server(None).url == f"http://127.0.0.1:{listening}"


def test_the_port_that_is_configured_is_called_where_no_folder_says_more(here: Path, listening: int) -> None:
    """As after `lakeward up --data` with another folder."""
    Path("lakeward.toml").write_text("server.port = 9876")
    assert open_server(None).url == "http://127.0.0.1:9876"
    (here / READY).write_text(f"http://127.0.0.1:{listening}")
    assert open_server(None).url == f"http://127.0.0.1:{listening}"


def test_what_the_environment_says_counts(here: Path, listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / READY).write_text(f"http://127.0.0.1:{listening}")
    monkeypatch.setenv("LAKEWARD_SERVER", "http://127.0.0.1:2")
    assert open_server(None).url == "http://127.0.0.1:2"


@pytest.mark.parametrize("words", ["", "nonsense", "http://127.0.0.1", "http://example.com:80", "http://127.0.0.1:x"])
def test_words_that_lead_elsewhere_are_left_alone(here: Path, words: str) -> None:
    (here / READY).write_text(words)
    assert server_of(here) is None


def test_a_server_that_was_killed_is_not_found(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        (here / READY).write_text(f"http://127.0.0.1:{gone.getsockname()[1]}")
    assert server_of(here) is None


def test_a_command_waits_for_an_up_that_is_starting(
    here: Path, listening: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / STARTING).write_text(str(os.getpid()))
    started = threading.Timer(0.3, (here / READY).write_text, [f"http://127.0.0.1:{listening}"])
    started.start()
    assert open_server(None).url == f"http://127.0.0.1:{listening}"
    started.join()
    assert "is starting; waiting for it" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["", "nobody", str(2**22 + 1)])
def test_a_start_that_was_killed_is_not_waited_for(here: Path, words: str) -> None:
    (here / STARTING).write_text(words)
    assert not is_starting(here)
    assert open_server(None).url == "http://127.0.0.1:9050"
