# SPDX-License-Identifier: Apache-2.0
"""Lake formats that a job can open: those whose plugin and libraries are both there."""

from __future__ import annotations

import logging
from importlib.metadata import metadata

from lakeward.spi import LAKE_GROUP, find_missing_library, installed

log = logging.getLogger("lakeward.tiering")


def openable_formats() -> tuple[str, ...]:
    """Called once, when a job starts, which says in one line of its log what the others need."""
    missing = {name: find_missing_library(name) for name in installed(LAKE_GROUP)}
    extras = metadata("lakeward").get_all("Provides-Extra") or []
    needs = [
        f"{name} needs {library}" + (f" (pip install 'lakeward[{name}]')" if name in extras else "")
        for name, library in missing.items()
        if library is not None
    ]
    if needs:
        log.info("formats whose tables are left to other jobs: %s", "; ".join(needs))
    return tuple(name for name, library in missing.items() if library is None)
