# SPDX-License-Identifier: Apache-2.0
"""Requests and answers about a server's lakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class LakeStatus:
    """`tables`: how many have a side there that is on. `trouble` is empty where the lake answered when it was asked
    last; `took_ms` says how long that took, where it was asked for this answer."""

    name: str
    format: str
    is_default: bool = False
    tables: int = 0
    trouble: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    took_ms: int | None = None
