# SPDX-License-Identifier: Apache-2.0
"""Messages of consumer groups: processes that share the buckets of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import TablePath


@dataclass(frozen=True, kw_only=True)
class GroupBeat:
    """One call is heartbeat, commit and question at once. `holding`: buckets that the member reads from now;
    `offsets`: bucket -> the offset behind the last row that it has processed."""

    member: str
    holding: tuple[str, ...] = ()
    offsets: Mapping[str, int] = field(default_factory=dict)
    leaving: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupAnswer:
    """`buckets`: those that the member may read, with the offset to begin at; without it (-1), from the first row. One
    that is missing is to be given up."""

    buckets: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    lease_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    """`owners`: bucket -> member."""

    path: TablePath
    group: str
    generation: int = 0
    members: tuple[str, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    lag: int = 0
