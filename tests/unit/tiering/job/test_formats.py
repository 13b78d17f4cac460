# SPDX-License-Identifier: Apache-2.0
"""A job tells of the formats that it can open, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.spi import LakePlugin, LakeStorage
from lakeward.tiering.job.formats import openable_formats

OURS = ("delta", "hudi", "iceberg", "lance", "memory", "paimon")


def test_all_formats_with_all_libraries(caplog: pytest.LogCaptureFixture) -> None:
    assert openable_formats() == OURS
    assert caplog.messages == []


def load_toy(options: object) -> LakeStorage:
    raise AssertionError("not opened")


toy = LakePlugin("toy", load_toy, libraries=("lakeward_no_such_library",))


def test_a_strangers_format_without_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed = tmp_path / "toylake-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toylake\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[lakeward.lake]\ntoy = {__name__}:toy\n")
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level("INFO", "lakeward.tiering"):
        assert openable_formats() == OURS
    assert caplog.messages == ["formats whose tables are left to other jobs: toy needs lakeward_no_such_library"]
