# SPDX-License-Identifier: Apache-2.0
"""Facts that a server reports to `lakeward doctor`: its machine, its logs, its ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import TablePath


@dataclass(frozen=True, kw_only=True)
class HotFacts:
    """Facts about the logs of one table. `appended_bytes` counts since the server started; `written_at_ms` None: no row
    yet; `ttl_ms` 0: rows are kept forever; `read_at_ms` None: no reads since the server started."""

    path: TablePath
    local_bytes: int = 0
    remote_bytes: int = 0
    records: int = 0
    appended_bytes: int = 0
    ttl_ms: int = 0
    written_at_ms: int | None = None
    read_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class LiveFacts:
    """The `live` warehouse. `bytes`: files of its answers in all lakes, of `max_bytes` that it may leave there.
    `cut_short`: tables whose newest answer ends before its moment. `overdue`: answers whose files should be deleted and
    are not."""

    bytes: int
    max_bytes: int
    cut_short: tuple[TablePath, ...] = ()
    overdue: int = 0


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """`memory_limit_bytes` None: no limit of a container is known."""

    version: str
    protocol: str
    now_ms: int
    up_ms: int
    disk_free_bytes: int
    disk_total_bytes: int
    disk_reserve_bytes: int = 0
    """Writes are refused while less is free."""

    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    open_files: int | None = None
    max_files: int | None = None
    is_loopback: bool = True
    has_tls: bool = False
    has_tokens: bool = False
    jobs_expected: tuple[str, ...] = ()
    backed_up_at_ms: int | None = None
    still: tuple[str, ...] = ()
    """Threads of the background that do not work."""

    sees_lake_reads: bool = False
    """A reader of a lake table through a catalog asks this server for it."""

    hot: tuple[HotFacts, ...] = ()
    live: LiveFacts | None = None
    """None: no Iceberg catalog is kept here."""

    table_defaults: Mapping[str, str] = field(default_factory=dict)
    """Table properties that the server's own settings give to tables that do not say otherwise."""


@dataclass(frozen=True, kw_only=True)
class LakeProbe:
    """Result of probing one table's lake. `error` None: a file was written there and deleted. `orphan_bytes`: our files
    that are older than `ORPHAN_AGE_MS` and not referenced."""

    path: TablePath
    error: str | None = None
    orphan_files: int = 0
    orphan_bytes: int = 0


ORPHAN_AGE_MS = 3 * 24 * 3_600_000
"""Two days after which no round commits any more, and a day for the sweep that takes what is left."""


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    catalogs: Mapping[str, str] = field(default_factory=dict)
    """Format -> "" or why its catalog refuses."""

    tables: tuple[LakeProbe, ...] = ()
