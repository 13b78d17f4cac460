# SPDX-License-Identifier: Apache-2.0
"""The documented name of the test kit, `lakeward.testing`. Its code is the distribution lakeward-testing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "lakeward_testing"


class TestingAlias(MetaPathFinder, Loader):
    """Imports `lakeward.testing.x` as `lakeward_testing.x`: one module under two names, so that a fault that is
    injected through one name is seen through the other.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(PACKAGE + spec.name.removeprefix(__name__))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It is loaded already; the import system has replaced its spec."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


try:
    _kit = importlib.import_module(PACKAGE)
except ModuleNotFoundError as error:
    if error.name != PACKAGE:
        raise
    reason = "lakeward.testing is a distribution of its own: pip install lakeward-testing"
    raise ModuleNotFoundError(reason, name=PACKAGE) from None
sys.meta_path.insert(0, TestingAlias())
sys.modules[__name__] = _kit
