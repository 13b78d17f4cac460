# SPDX-License-Identifier: Apache-2.0
"""The server process: opens store, lakes and coordinator, serves HTTP and Flight, and goes down in order."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward import __version__
from lakeward.config import Config, options
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.federation import Federation
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.state.statestore import StateStore
from lakeward.hot.embedded.log.durable import write_whole
from lakeward.hot.embedded.openfiles import raise_limit
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Clock, StopSignal, SystemClock, escape_log, usable
from lakeward.protocol.routes import PROTOCOL
from lakeward.protocol.tables import ServerInfo
from lakeward.server.admission.audit import AuditLog
from lakeward.server.admission.auth import is_loopback
from lakeward.server.admission.flightdoor import FlightDoor
from lakeward.server.admission.httpdoor import FrontDoor, HttpDoor, bind_listener
from lakeward.server.admission.interpreter import keep_loaded, share_turns
from lakeward.server.admission.loglimit import LogLimit
from lakeward.server.admission.settings import ServerSettings
from lakeward.server.app import create_app
from lakeward.server.contract.contracts import TableContracts
from lakeward.server.contract.quarantine import Quarantine
from lakeward.server.feed.history import HISTORY_FILE, SAMPLE_S, History
from lakeward.server.feed.loglines import LINES
from lakeward.server.ingest.rowput import RowIntake
from lakeward.server.ingest.sources import SourceDesk
from lakeward.server.lakes import ServerLakes
from lakeward.server.restored import check_catalog_moved, load_mark, move_catalog_forward, remove_mark
from lakeward.server.services import Services
from lakeward.server.show.metrics import ServerCollector
from lakeward.server.show.sampler import Sampler
from lakeward.server.tablequota import TableQuota
from lakeward.tiering.work.heap import keep_freed_memory

if TYPE_CHECKING:
    from lakeward.server.live.warehouse import LiveWarehouse

log = logging.getLogger(__name__)


LOOK_S = 1.0
"""How often a server looks whether HTTP and Flight still serve."""


class LakewardServer:
    """`start()` returns once both doors are open; `stop()` closes them, waits for what is in work, and puts all to
    disk.
    """

    def __init__(
        self, config: Config, *, clock: Clock | None = None, store_options: StoreOptions | None = None
    ) -> None:
        """`clock` and `store_options` are for programs that hurt the server on purpose: time that jumps, a disk that is
        full.
        """
        self.settings = ServerSettings.of(config)
        self._restored = load_mark(self.settings.data)
        if self._restored is not None:
            config = config.with_arguments({options.SERVER_RESTORED.key: "true"})
        self.config = config
        if not is_loopback(self.settings.host) and self.settings.tls is None:
            log.warning(
                "tokens travel readable to %s: set server.tls.cert and server.tls.key, or put TLS in front",
                self.settings.host,
            )
        self._clock: Clock = clock or SystemClock()
        self._store_options = store_options or StoreOptions.of(config)
        self.server_id = str(uuid.uuid4())
        self.url = self.flight_uri = ""
        self._stack = ExitStack()
        self._http: HttpDoor | None = None
        self._flight: FlightDoor | None = None
        self._ready = False

    def start(self) -> None:
        """Raises typed errors: `DataFolderLocked`, `InvalidConfig`, `InsecureBinding`, ..."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        clock, door = self._clock, FrontDoor()
        self._start_http(door)
        store = EmbeddedStore.open(self.settings.data, self._store_options, clock)
        self._stack.callback(store.close)
        sources = SourceDesk(store, self.settings.data, clock)
        lakes = self._open_lakes()
        with usable(self.settings.data):
            audit = AuditLog(self.settings.data / "audit", self.config.get(options.SERVER_AUDIT), clock)
        self._stack.callback(audit.close)
        with usable(self.settings.data), store.ballast.writing():
            state = StateStore.open(self.settings.data / "coordinator.db", ballast=store.ballast)
        self._stack.callback(state.close)
        self._flight = flight = FlightDoor(self.config, self.settings, store, audit)
        self.flight_uri = self.settings.flight_uri(self._flight.port)
        coordinator = self._start_coordinator(state, store, lakes)
        federation = Federation(coordinator)
        self._stack.callback(federation.adoptions.thread.stop)
        federation.adoptions.thread.start()
        quarantine = Quarantine(store, federation, self.config, clock)
        live = self._open_live(lakes, coordinator, store)
        services = Services(
            store=store,
            live=live,
            coordinator=coordinator,
            federation=federation,
            tokens=self.settings.tokens,
            info=lambda: self._info(lakes, coordinator),
            intake=self._intake(store, flight.service, TableContracts(self.config, quarantine)),
            quarantine=quarantine,
            sources=sources,
            clock=clock,
            ready=lambda: self._ready,
            lakes=lakes,
            callers=self.settings.callers,
            audit=audit,
            bound_jobs=self.config.get(options.SERVER_JOBS_BOUND),
            before_change=store.ballast.before_write,
            max_requests=self.config.get(options.SERVER_QUOTA_REQUESTS),
            quota=TableQuota(
                self.config.get(options.SERVER_QUOTA_TABLES), self.config.get(options.SERVER_QUOTA_DEFINITIONS)
            ),
            max_reads=self.config.get(options.SERVER_QUOTA_READS),
            max_body_bytes=self.config.get(options.SERVER_HTTP_MAX_BODY),
            data=self.settings.data,
            host=self.settings.host,
            has_tls=self.settings.tls is not None,
            started_at_ms=clock.now_ms(),
            history=History(self.settings.data / HISTORY_FILE),
            consumers=flight.service.consumers,
            background=lambda: [*flight.heartbeats(), *(thread.heartbeat() for thread in threads)],
        )
        sampler = Sampler(services)
        threads = [*store.upkeep.threads, *coordinator.upkeep.threads, sampler, federation.adoptions.thread]
        threads += [part.thread for part in (self.settings.issuer, live) if part is not None]
        self._start_feeds(sampler, services)
        flight.service.gate.open()
        door.app = create_app(services)
        self._ready = True

    def _start_feeds(self, sampler: Sampler, services: Services) -> None:
        self._stack.callback(sampler.stop, SAMPLE_S)
        sampler.start()
        endpoint = self.config.get(options.SERVER_OTLP_ENDPOINT)
        if endpoint is None:
            return
        from lakeward.server.feed.otlpmetrics import MetricsExport

        export = MetricsExport(endpoint, ServerCollector(services))
        self._stack.callback(export.stop)
        export.thread.start()

    def _start_http(self, door: FrontDoor) -> None:
        listener = bind_listener(self.settings.host, self.settings.port)
        self.url = self.settings.http_url(listener.getsockname()[1])
        if self.settings.issuer is not None:
            self.settings.issuer.thread.start()
            self._stack.callback(self.settings.issuer.thread.stop, 1.0)
        self._http = HttpDoor(self.config, self.settings.tls, door, listener)
        self._http.start()

    def _open_lakes(self) -> ServerLakes:
        lakes = ServerLakes(self.config, self.settings.data)
        embedded = lakes.embedded()
        if embedded is not None:
            check_catalog_moved(embedded, self.settings.data)
            if self.config.get(options.SERVER_RESTORED):
                move_catalog_forward(embedded)
        return lakes

    def _start_coordinator(self, state: StateStore, store: EmbeddedStore, lakes: ServerLakes) -> Coordinator:
        coordinator_options = CoordinatorOptions.from_config(
            self.config,
            flight_uri=self.flight_uri,
            addresses=lakes.addresses(self.url),
            lakes_missing={} if self._restored is None else lakes.missing(self._restored.lakes),
        )
        coordinator = Coordinator(state, store, lakes, self._clock, coordinator_options)
        coordinator.lakes.when_met = partial(remove_mark, self.settings.data)
        coordinator.open()
        self._stack.callback(coordinator.close)
        if self.config.get(options.SERVER_RESTORED):
            coordinator.lakes.read_restored()
        coordinator.start()
        return coordinator

    def _intake(self, store: EmbeddedStore, flight: FlightService, contracts: TableContracts) -> RowIntake:
        most_bytes = self.config.get(options.SERVER_HTTP_MAX_BODY)
        return RowIntake(store, flight.budget, flight.writers, flight.gate, most_bytes, contracts)

    def _open_live(self, lakes: ServerLakes, coordinator: Coordinator, store: EmbeddedStore) -> LiveWarehouse | None:
        if not lakes.has_embedded_catalog:
            return None
        from lakeward.server.live.serversource import ServerLiveSource  # it brings PyIceberg
        from lakeward.server.live.warehouse import LiveOptions, LiveWarehouse

        live_options = LiveOptions.of(self.config)
        source = ServerLiveSource(coordinator, store, lakes.embedded_names(), self._clock, live_options.keep_s)
        live = LiveWarehouse(source, self.settings.data, self._clock, live_options)
        self._stack.callback(live.close)
        live.thread.start()
        return live

    @property
    def is_serving(self) -> bool:
        """False once HTTP or Flight has ended by itself: what is left of the process helps no one."""
        http, flight = self._http, self._flight
        return http is not None and http.is_serving and flight is not None and flight.is_serving

    def stop(self) -> None:
        """Safe to repeat. Calls in work get `server.shutdown.grace`; then everything goes to disk."""
        self._ready = False
        grace_s = self.config.get(options.SERVER_SHUTDOWN_GRACE).total_seconds()
        if self._flight is not None and not self._flight.service.gate.drain(grace_s):
            log.warning("calls were still in work after %s s", grace_s)
        if self._http is not None:
            self._http.stop(grace_s + 5)
            self._http = None
        if self._flight is not None:
            self._flight.close()
            self._flight = None
        self._stack.close()

    def _info(self, lakes: ServerLakes, coordinator: Coordinator) -> ServerInfo:
        lake, addresses = lakes.lake, lakes.addresses(self.url)
        return ServerInfo(
            version=__version__,
            protocol=PROTOCOL,
            flight_uri=self.flight_uri,
            server_id=self.server_id,
            coordinator_id=coordinator.coordinator_id,
            coordinator_epoch=coordinator.epoch,
            lake_format=lake.format if lake is not None and lake.enabled else None,
            iceberg_uri=f"{self.url}/iceberg" if lakes.has_embedded_catalog else None,
            lake_options={} if lake is None else addresses[lake.name].options,
            lakes=addresses,
            max_batch_bytes=min(
                self.config.get(options.SERVER_REQUEST_MAX_SIZE),
                self.config.get(options.SERVER_MEMORY_MAX_IN_FLIGHT),
                self.config.get(options.SERVER_QUOTA_BYTES),
            ),
        )


def run_server(
    config: Config,
    ready_file: Path | None = None,
    *,
    as_json: bool = False,
    make: Callable[[Config], LakewardServer] = LakewardServer,
) -> int:
    """Serves until SIGTERM or SIGINT, or until HTTP or Flight ends by itself (then 1 is returned).
    Prints one line with the URL; `ready_file` gets the URL once both doors are open.
    """
    logging.basicConfig(level=str(config.get(options.SERVER_LOG_LEVEL)).upper())
    escape_log()
    logging.getLogger().addHandler(LINES)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    os.umask(0o077)  # rows, keys and state are nobody else's to read
    stopping = StopSignal()
    share_turns()
    keep_freed_memory()
    log.info("this process may open %d files", raise_limit())
    server = make(config)
    server.start()
    keep_loaded()
    if as_json:
        print(
            json.dumps({"url": server.url, "flight": server.flight_uri, "data": str(server.settings.data)}), flush=True
        )
    else:
        print(
            f"lakeward server at {server.url} (Flight {server.flight_uri}, data in {server.settings.data})", flush=True
        )
    if ready_file is not None:
        write_whole(ready_file, server.url.encode())
    while not stopping.wait(LOOK_S) and server.is_serving:
        continue
    code = 0 if server.is_serving else 1
    if code:
        log.critical("HTTP or Flight ended by itself, so the server ends; the log above says why")
    server.stop()
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    return code


def exit_now(code: int) -> None:
    """Ends the process without waiting for gRPC's threads, which idle peers keep alive.
    Everything is on disk by then.
    """
    logging.shutdown()
    os._exit(code)
