# SPDX-License-Identifier: Apache-2.0
"""Imports the libraries of a round before the first one: in the driver, and in the process that Python workers are
forked from. Imports only: nothing here may connect, as gRPC does not survive a fork."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from lakeward.errors import PluginNotFound
from lakeward.spi import HOT_GROUP, LAKE_GROUP, import_plugin, installed
from lakeward.tiering.work.kinds import KINDS, load_runner

PRELOAD_ENV = "LAKEWARD_PRELOAD"
"""Names of hot store plugins, by blanks: what the daemon of the Python workers imports."""


def import_for_rounds(hot: Sequence[str]) -> None:
    """Takes a second or two. A plugin that is not installed, or fails to import, is left to the round that
    asks for it.
    """
    for kind in KINDS:
        load_runner(kind)
    for group, names in ((HOT_GROUP, hot), (LAKE_GROUP, installed(LAKE_GROUP))):
        for name in names:
            with contextlib.suppress(PluginNotFound, ImportError):
                import_plugin(group, name)


def preloaded_hot() -> list[str]:
    return os.environ.get(PRELOAD_ENV, "").split()
