# SPDX-License-Identifier: Apache-2.0
"""Input of the checks: one record of values. `gather` fills it from a server; tests fill it by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeward.model import TIER, TableInfo, TableState
from lakeward.protocol.facts import HotFacts, ProbeAnswer, ServerFacts
from lakeward.protocol.operate import AdmissionAnswer, CoordinatorStatus
from lakeward.protocol.views import RoundStatus, TableStatus


@dataclass(frozen=True, kw_only=True)
class HereFacts:
    """This machine, where the command runs. `now_ms`: its clock in the middle of a question to the server that took
    `answer_ms`."""

    version: str
    protocol: str
    now_ms: int
    answer_ms: int = 0
    server_url: str = "http://127.0.0.1:9050"
    has_token: bool = False
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings from spark-defaults.conf, if there is one, and spark.* in lakeward.toml."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`rounds`: those that ended last, newest first. `probe` None: it was not asked for."""

    here: HereFacts
    server: ServerFacts
    status: CoordinatorStatus
    tables: Mapping[str, TableInfo] = field(default_factory=dict)
    rounds: Sequence[RoundStatus] = ()
    admission: AdmissionAnswer | None = None
    probe: ProbeAnswer | None = None
    lake_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def tiered(self) -> list[TableStatus]:
        """Tables that rounds serve; what is blocked has a check of its own."""
        stands = (TableState.DISABLED, TableState.PAUSED)
        return [t for t in self.status.tables if t.state not in stands and not t.blocked]

    def hot(self, path: str) -> HotFacts | None:
        return next((h for h in self.server.hot if str(h.path) == path), None)

    def done_rounds(self, path: str) -> list[RoundStatus]:
        """Rounds of a table that brought rows into the lake, newest first."""
        return [r for r in self.rounds if str(r.path) == path and r.kind == TIER and r.outcome != "failed" and r.rows]
