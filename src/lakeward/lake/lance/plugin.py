# SPDX-License-Identifier: Apache-2.0
"""Entry point of the Lance lake: opens `LakeStorage` with the configured options. `warehouse` is a folder or an S3
address; without it the server keeps the lake in its own folder.

The library is imported when a lake is opened, not with this module: it does not survive a fork, and Spark's Python
workers are forked from a process that has imported every plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakeward.lake.warehouse import WarehousePlugin, parse_warehouse

if TYPE_CHECKING:
    from lakeward.lake.lance.storage import LanceLakeStorage


def open_lake(options: Mapping[str, str]) -> LanceLakeStorage:
    """Opens the lake. Raises `UnknownOption`, `InvalidConfig`."""
    from lakeward.lake.lance.storage import LanceLakeStorage

    return LanceLakeStorage(parse_warehouse("lance", options), options)


load = WarehousePlugin(
    "lance",
    open_lake,
    libraries=("lance", "pyroaring"),
    commits=["*/_versions/*"],
    pointers=["*/_refs/*", "*/.lakeward/*"],
)
