# SPDX-License-Identifier: Apache-2.0
"""`lakeward.testing`, the documented name of the test kit, and what people read where the kit is not installed."""

from __future__ import annotations

import importlib
import importlib.abc
import pickle
import sys
from importlib.machinery import ModuleSpec

import pytest

import lakeward_testing
import lakeward_testing.clock
from lakeward.cli.app import run


class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "lakeward_testing":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


@pytest.fixture
def no_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith(("lakeward_testing", "lakeward.testing", "lakeward.cli.run"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])


def test_the_old_name_and_the_new_one_are_the_same_modules() -> None:
    assert importlib.import_module("lakeward.testing") is lakeward_testing
    assert importlib.import_module("lakeward.testing.clock") is lakeward_testing.clock
    assert (
        importlib.import_module("lakeward.testing.lakes.rounds").LakeRound.__module__ == "lakeward_testing.lakes.rounds"
    )
    assert lakeward_testing.clock.__spec__ is not None
    assert lakeward_testing.clock.__spec__.name == "lakeward_testing.clock"
    assert pickle.loads(pickle.dumps(lakeward_testing.clock.ManualClock)) is lakeward_testing.clock.ManualClock


@pytest.mark.usefixtures("no_kit")
def test_chaos_without_the_kit_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "--faults", "list"]) == 2
    assert capsys.readouterr().err == (
        "lakeward: this command needs the package lakeward-testing: pip install 'lakeward[chaos]'\n"
    )


@pytest.mark.usefixtures("no_kit")
def test_the_old_name_without_the_kit_says_what_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match="pip install lakeward-testing"):
        importlib.import_module("lakeward.testing.clock")
