# SPDX-License-Identifier: Apache-2.0
"""Services of the HTTP resources: one record, passed to every router factory. `process` builds a server's; pages need
fewer of them, and get those of a cluster from `console`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.hot.embedded.serve.consumers import Consumers
from lakeward.model import Clock, Heartbeat, TablePath
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.tables import ServerInfo
from lakeward.server.admission.audit import AuditLog
from lakeward.server.admission.callers import Callers
from lakeward.server.feed.history import History
from lakeward.server.feed.pagesource import PageSource, ServerSource
from lakeward.server.feed.tablefeed import TableFeed
from lakeward.server.lakethreads import LakeThreads
from lakeward.server.tablequota import TableQuota

if TYPE_CHECKING:
    from lakeward.coordinator.coordinator import Coordinator
    from lakeward.coordinator.federation import Federation
    from lakeward.hot.embedded.store import EmbeddedStore
    from lakeward.server.contract.quarantine import Quarantine
    from lakeward.server.ingest.rowput import RowIntake
    from lakeward.server.ingest.sources import SourceDesk
    from lakeward.server.lakes import ServerLakes
    from lakeward.server.live.warehouse import LiveWarehouse


@dataclass(frozen=True, kw_only=True)
class PageServices:
    """Services that the resources of pages and metrics need."""

    tokens: TokenSet
    clock: Clock
    ready: Callable[[], bool] = lambda: True
    background: Callable[[], Sequence[Heartbeat]] = tuple
    """Heartbeats of all background threads."""

    callers: Callers = field(default_factory=Callers)
    audit: AuditLog | None = None
    before_change: Callable[[], None] = lambda: None
    """Called before what may write to the server's disk."""

    max_requests: int = 500
    max_body_bytes: int = 16 * 1024 * 1024
    history: History = field(default_factory=History)
    feed: TableFeed = field(default_factory=TableFeed)
    live: LiveWarehouse | None = None
    """Where the server keeps an Iceberg catalog."""

    sources: SourceDesk | None = None
    """Where the server keeps the hot store."""

    @property
    def source(self) -> PageSource:
        raise NotImplementedError

    def stopped_sources(self) -> Mapping[TablePath, int]:
        """Tables whose quarantine got more rows than it takes, with the rows of that minute."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Services(PageServices):
    """`info` is asked on each call: the coordinator's epoch is known only once it runs."""

    store: EmbeddedStore
    coordinator: Coordinator
    federation: Federation
    info: Callable[[], ServerInfo]
    intake: RowIntake
    quarantine: Quarantine | None = None
    """None: rows that do not fit are refused."""

    lakes: ServerLakes | None = None
    """None: a server without any lake of its own."""

    bound_jobs: bool = False
    quota: TableQuota = field(default_factory=TableQuota)
    max_reads: int = 1_000
    data: Path = Path()
    host: str = "127.0.0.1"
    has_tls: bool = False
    started_at_ms: int = 0
    consumers: Consumers = field(default_factory=Consumers)
    lake_threads: LakeThreads = field(default_factory=LakeThreads)

    @property
    def source(self) -> PageSource:
        return ServerSource(self.coordinator, self.store, self.clock)

    def stopped_sources(self) -> Mapping[TablePath, int]:
        return {} if self.quarantine is None else self.quarantine.rates.stopped()
