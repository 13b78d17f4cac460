# SPDX-License-Identifier: Apache-2.0
"""The Flight door: the store's Flight service on the configured port, with the configured limits."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

from lakeward.config import Config, options
from lakeward.errors import InvalidConfig, LakewardError, Unauthorized
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.grpcserver import FlightLimits
from lakeward.hot.embedded.serve.quota import StreamQuotas, WriterQuotas
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Heartbeat
from lakeward.server.admission.audit import AuditLog
from lakeward.server.admission.loglimit import PER_MINUTE
from lakeward.server.admission.settings import ServerSettings

log = logging.getLogger(__name__)


class FlightDoor:
    """Accepts connections once it is created; calls get a retryable error until `service.gate` is open."""

    def __init__(self, config: Config, settings: ServerSettings, store: EmbeddedStore, audit: AuditLog) -> None:
        """Raises `InvalidConfig` for a port that is in use and a certificate that is none."""
        self._audit, self._minute, self._refusals = audit, 0, Counter[str]()
        per_peer = options.SERVER_FLIGHT_MAX_CONNECTIONS_PER_PEER
        if config.get(per_peer) != per_peer.default:
            log.warning("%s has no effect: limit connections of one address by a proxy in front", per_peer.key)
        budget = MemoryBudget(
            total_bytes=config.get(options.SERVER_MEMORY_MAX_IN_FLIGHT),
            request_bytes=config.get(options.SERVER_REQUEST_MAX_SIZE),
            token_bytes=config.get(options.SERVER_QUOTA_BYTES),
        )
        try:
            self.service = FlightService(
                store,
                settings.tokens,
                host=settings.host,
                port=settings.flight_port,
                tls=settings.tls.pair() if settings.tls else None,
                budget=budget,
                audit=audit,
                on_refused=self._refused,
                quotas=StreamQuotas(
                    config.get(options.SERVER_QUOTA_STREAMS), config.get(options.SERVER_FLIGHT_MAX_CALLS)
                ),
                writers=WriterQuotas(config.get(options.SERVER_QUOTA_WRITERS)),
                limits=_limits(config),
                is_open=False,
            )
        except OSError as error:
            reason = f"Flight cannot listen on {settings.host}:{settings.flight_port}: {error}"
            raise InvalidConfig(where=options.SERVER_FLIGHT_PORT.key, reason=reason) from error

    @property
    def port(self) -> int:
        return self.service.port

    @property
    def is_serving(self) -> bool:
        return self.service.grpc.is_serving

    def heartbeats(self) -> list[Heartbeat]:
        return [self.service.grpc.heartbeat(), self.service.watch.thread.heartbeat()]

    def close(self) -> None:
        """Ends all calls. What is in work ends with the process: it may wait for a disk."""
        threading.Thread(target=self.service.shutdown, daemon=True).start()

    def _refused(self, error: LakewardError, peer: str, method: str) -> None:
        """Callers without a token do not fill the audit log: it takes so many lines of a cause a minute."""
        if isinstance(error, Unauthorized):
            log.warning("refused a Flight call from %s (%s): %s", peer, method, error.reason)
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._refusals = minute, Counter()
        self._refusals[error.code] += 1
        if self._refusals[error.code] <= PER_MINUTE:
            self._audit.flight("nobody", peer, f"Flight {method}", None, error.code, is_change=False)


def _limits(config: Config) -> FlightLimits:
    return FlightLimits(
        batch_bytes=config.get(options.SERVER_REQUEST_MAX_SIZE),
        ticket_bytes=config.get(options.SERVER_FLIGHT_MAX_TICKET),
        connections=config.get(options.SERVER_FLIGHT_MAX_CONNECTIONS),
        header_s=config.get(options.SERVER_FLIGHT_HEADER_TIME).total_seconds(),
        idle_s=config.get(options.SERVER_FLIGHT_IDLE_TIME).total_seconds(),
    )
