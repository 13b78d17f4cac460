# SPDX-License-Identifier: Apache-2.0
"""Names of our files. Each says its round after its kind: `data-lw-ROUND-...`, `manifest-list-lw-ROUND-...`."""

from __future__ import annotations

import os

from lakeward.model.ids import RoundId

MARK = "-lw-"


def round_prefix(folder: str, round_id: RoundId) -> str:
    """For an intent; `has_prefix` tells a file by it."""
    return f"{folder}/lw-{round_id}-"


def name_of(kind: str, round_id: RoundId) -> str:
    return f"{kind}{MARK}{round_id}-"


def has_prefix(name: str, prefix: str) -> bool:
    return f"-{prefix.rpartition('/')[2]}" in name


def is_ours(name: str) -> bool:
    return MARK in name


def sync(paths: list[str]) -> None:
    """On stable storage, with the folders that name them: a commit must not outlive its files. An object store
    answers when they are."""
    local = [p for p in paths if "://" not in p]
    for path in [*local, *{os.path.dirname(p) for p in local}]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
