# SPDX-License-Identifier: Apache-2.0
"""The walk of CONTRIBUTING, "a kind of source": a folder and an entry point, and `lakeward ingest` has its options."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lakeward.cli import app
from lakeward.spi import registry
from tests.kit import toysource
from tests.kit.serverprocess import ServerProcess


def test_a_kind_of_source_is_a_folder_and_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source_server: ServerProcess
) -> None:
    installed = tmp_path / "toy-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{registry.SOURCE_GROUP}]\ntoy = {toysource.__name__}:load\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert app.run(["ingest", "--help"]) == 0
    assert "--lengthen-to" in capsys.readouterr().out
    client = source_server.client()

    def ingest(*arguments: str) -> list[int]:
        assert app.run(["ingest", *arguments, "--until-idle", "--server", source_server.url]) == 0
        return sorted(client.read("walk.numbers").to_table()["n"].to_pylist())

    assert ingest("toy://numbers/all", "--to", "walk", "--count", "25") == list(range(25))
    assert ingest("toy-numbers-all") == list(range(25))
    assert ingest("toy-numbers-all", "--lengthen-to", "40") == list(range(40))
    assert app.run(["source", "show", "toy-numbers-all", "--server", source_server.url]) == 0
    assert "40 in" in capsys.readouterr().out
    assert app.run(["source", "drop", "toy-numbers-all", "--server", source_server.url]) == 0
