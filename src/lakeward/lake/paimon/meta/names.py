# SPDX-License-Identifier: Apache-2.0
"""Names of our files. Each says its round after its kind: `data-lw-ROUND-...`, `manifest-list-lw-ROUND-...`."""

from __future__ import annotations

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
