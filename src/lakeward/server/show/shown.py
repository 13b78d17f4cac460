# SPDX-License-Identifier: Apache-2.0
"""Filters answers about many tables down to those that a token may see."""

from __future__ import annotations

from dataclasses import replace

from lakeward.protocol.auth import Token
from lakeward.protocol.operate import CoordinatorStatus


def limit_status(status: CoordinatorStatus, token: Token) -> CoordinatorStatus:
    if not token.tables:
        return status
    tables = tuple(t for t in status.tables if token.may_use(t.path))
    adoptions = tuple(a for a in status.adoptions if token.may_use(a.path))
    used = {t.side.lake for t in tables}
    lakes = {name: words for name, words in status.lakes.items() if name in used or len(status.lakes) == 1}
    limited = replace(status, tables=tables, adoptions=adoptions, lakes=lakes)
    return replace(limited, jobs=(), jobs_missing=(), pools_unserved=(), figures={}, warnings=())
