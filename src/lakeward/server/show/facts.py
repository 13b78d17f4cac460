# SPDX-License-Identifier: Apache-2.0
"""Gathers what `lakeward doctor` asks of a server. Reads alone; the probe writes a file into a lake and deletes it."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from lakeward import __version__
from lakeward.config import options
from lakeward.config.config import DEFAULT
from lakeward.config.option import Scope
from lakeward.config.tables import DEFAULT_LAKE
from lakeward.errors import LakewardError
from lakeward.model import TableInfo, TablePath, resident_bytes
from lakeward.protocol.facts import ORPHAN_AGE_MS, HotFacts, LakeProbe, ProbeAnswer, ServerFacts
from lakeward.protocol.routes import PROTOCOL
from lakeward.server.admission.auth import is_loopback
from lakeward.server.services import Services
from lakeward.spi import LakeStorage, SupportsProbe

BACKED_UP = "backed-up"
"""A file of the data folder whose time is that of the last whole backup."""

_NO_LIMIT = 1 << 60


def gather_facts(services: Services, may_use: Callable[[TablePath], bool]) -> ServerFacts:
    disk = shutil.disk_usage(services.data)
    now_ms = services.clock.now_ms()
    return ServerFacts(
        version=__version__,
        protocol=PROTOCOL,
        now_ms=now_ms,
        up_ms=now_ms - services.started_at_ms,
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        disk_reserve_bytes=services.coordinator.board.options.config.get(options.SERVER_DISK_RESERVE),
        memory_bytes=resident_bytes(),
        memory_limit_bytes=memory_limit(),
        open_files=_open_files(),
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        is_loopback=is_loopback(services.host),
        has_tls=services.has_tls,
        has_tokens=not services.tokens.is_open,
        jobs_expected=services.coordinator.board.options.jobs_expected,
        backed_up_at_ms=_time_of(services.data / BACKED_UP),
        still=tuple(beat.name for beat in services.background() if not beat.is_well),
        sees_lake_reads=services.lakes is not None and services.lakes.embedded_catalog() is not None,
        hot=tuple(facts for facts in _hot(services, now_ms) if may_use(facts.path)),
        live=None if services.live is None else services.live.facts(may_use),
        table_defaults=_table_defaults(services),
    )


def probe_lakes(
    services: Services, chosen: TablePath | None, most: int, may_use: Callable[[TablePath], bool]
) -> ProbeAnswer:
    """Writes and deletes a file for each table, or for one, and counts files that nothing references."""
    board = services.coordinator.board
    with board.lock:
        sides = [s for s in board.sides() if chosen in (None, s.info.path) and s.options.enabled]
    sides = [s for s in sides if may_use(s.info.path)]
    catalogs: dict[str, str] = {}
    probes = []
    for side in sorted(sides, key=lambda s: s.info.path)[:most]:
        name = str(side.options.format if side.options.lake == DEFAULT_LAKE else side.options.lake)
        try:
            storage = board.lake_of(side)
            if storage is None:
                continue
            if name not in catalogs:
                storage.catalog().check()
                catalogs[name] = ""
            if not catalogs[name]:
                probes.append(_probe(storage, side.lake_table, services.clock.now_ms()))
        except LakewardError as error:
            catalogs[name] = str(error)
    return ProbeAnswer(catalogs=catalogs, tables=tuple(probes))


def _probe(storage: LakeStorage, table: TableInfo, now_ms: int) -> LakeProbe:
    try:
        upkeep = storage.open_maintenance(table)
        if isinstance(upkeep, SupportsProbe):
            upkeep.probe()
        listed = [f for f in upkeep.list_files() if f.modified_at_ms < now_ms - ORPHAN_AGE_MS]
        used = upkeep.references() if listed else set()
    except LakewardError as error:
        return LakeProbe(path=table.path, error=str(error))
    orphans = [f for f in listed if f.path not in used]
    return LakeProbe(path=table.path, orphan_files=len(orphans), orphan_bytes=sum(f.size_bytes for f in orphans))


def _table_defaults(services: Services) -> dict[str, str]:
    resolved = services.coordinator.board.options.config.resolved([Scope.TABLE])
    return {r.key: r.text for r in resolved if r.option is not None and r.where != DEFAULT}


def _hot(services: Services, now_ms: int) -> Iterable[HotFacts]:
    now = time.monotonic()
    for sizes in services.store.sizes():
        read_at = services.consumers.read_at(sizes.table_id)
        yield HotFacts(
            path=sizes.path,
            local_bytes=sizes.local_bytes,
            remote_bytes=sizes.remote_bytes,
            records=sizes.appended_records,
            appended_bytes=sizes.appended_bytes,
            ttl_ms=sizes.ttl_ms,
            written_at_ms=sizes.written_at_ms or None,
            read_at_ms=None if read_at is None else now_ms - round((now - read_at) * 1000),
        )


def memory_limit(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The least of this process's control group and those above it, as either version of the kernel's lays them out.
    In a container the own path may lead nowhere, and the limit is at the top."""
    limits = []
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
            path = top / group.strip("/")
            for folder in (path, *path.parents[: len(path.relative_to(top).parts)]):
                with suppress(OSError, ValueError):  # the word "max" is no number
                    limits.append(int((folder / name).read_text()))
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _open_files() -> int | None:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return None


def _time_of(file: Path) -> int | None:
    with suppress(OSError):
        return int(file.stat().st_mtime * 1000)
    return None
