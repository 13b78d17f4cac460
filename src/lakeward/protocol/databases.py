# SPDX-License-Identifier: Apache-2.0
"""Requests and answers about databases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AlterDatabase:
    """`lake`: where new tables are made that name none; None: where the server's configuration says."""

    lake: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatabaseStatus:
    """`tokens`: names of those that may use a table of it, for an administrator; none where everybody may."""

    name: str
    lake: str | None = None
    tables: int = 0
    tokens: tuple[str, ...] = ()
