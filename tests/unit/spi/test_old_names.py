# SPDX-License-Identifier: Apache-2.0
"""Plugins that were written for 0.1 import the lake plug point from `lakeward.spi.lake`: they work, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.lake.memory.plugin import CAPABILITIES
from lakeward.spi import lake, load_lake

OLD_NAMES = [
    "COMMIT_USER",
    "COMMIT_USER_KEY",
    "EPOCH_KEY",
    "FENCE_KEY",
    "GENERATION_KEY",
    "JOB_KEY",
    "OFFSETS_KEY",
    "ROUND_KEY",
    "ROWS_KEY",
    "TABLE_ID_KEY",
    "TAG",
    "AdoptedRows",
    "CommitProperties",
    "Committable",
    "Expired",
    "LakeCatalog",
    "LakeCommitter",
    "LakeDelete",
    "LakeFile",
    "LakeMaintenance",
    "LakeReader",
    "LakeSnapshot",
    "LakeStorage",
    "LakeTotals",
    "LakeWriter",
    "Precondition",
    "PreparedRewrite",
    "Renewal",
    "RewriteGroup",
    "RewriteResult",
    "RewriteTask",
    "StoredFile",
    "WriteTask",
    "OWN_PROPERTY",
    "is_own",
    "PROBE",
]

PLUGIN = """
from lakeward.lake.memory.plugin import CAPABILITIES, load as load_memory
from lakeward.spi.lake import COMMIT_USER, LakeStorage, WriteTask

class OldStorage(LakeStorage):
    name = "old"
    capabilities = CAPABILITIES

    def __init__(self, options):
        self._memory = load_memory(options)

    def catalog(self): return self._memory.catalog()
    def open_writer(self, task): return self._memory.open_writer(task)
    def open_committer(self, table): return self._memory.open_committer(table)
    def open_reader(self, table): return self._memory.open_reader(table)
    def open_maintenance(self, table): return self._memory.open_maintenance(table)
"""


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_is_the_new_one_and_warns(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"lakeward\.spi\.lake\.{name} is now lakeward\.spi\.\S+\.{name}; "):
        found = getattr(lake, name)
    assert getattr(found, "__name__", name) == name


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LakeThing'"):
        _ = lake.LakeThing


def test_a_plugin_that_imports_the_old_names_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "old-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: old\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[lakeward.lake]\nold = old_lakeward_plugin:OldStorage\n")
    (tmp_path / "old_lakeward_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(DeprecationWarning, match=r"lakeward\.spi\.lake\.\w+ is now"):
        storage = load_lake("old", {})
    assert storage.name == "old"
    assert storage.capabilities is CAPABILITIES
