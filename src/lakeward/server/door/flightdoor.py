# SPDX-License-Identifier: Apache-2.0
"""The Flight door: the Flight server behind a socket of the file system, and the gate with the port in front of it."""

from __future__ import annotations

import threading
from pathlib import Path

from lakeward.config import Config, options
from lakeward.errors import InvalidConfig
from lakeward.hot.embedded.gate.keeper import GateKeeper, GateSecrets, make_socket_folder
from lakeward.hot.embedded.gate.settings import GateLimits
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.quota import StreamQuotas, WriterQuotas
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.server.door.audit import AuditLog
from lakeward.server.settings import ServerSettings


class FlightDoor:
    """Takes connections once it is made; calls are told to come again until `service.gate` is open."""

    def __init__(self, config: Config, settings: ServerSettings, store: EmbeddedStore, audit: AuditLog) -> None:
        """Raises `InvalidConfig` for a port that is in use and a certificate that is none."""
        self._audit, inner = audit, _make_inner()
        try:
            self.keeper = GateKeeper(
                settings.host, settings.flight_port, inner, _limits(config), _secrets(config, settings), self._refused
            )
        except OSError as error:
            inner.parent.rmdir()
            reason = f"Flight cannot listen on {settings.host}:{settings.flight_port}: {error}"
            raise InvalidConfig(where=options.SERVER_FLIGHT_PORT.key, reason=reason) from error
        budget = MemoryBudget(
            total_bytes=config.get(options.SERVER_MEMORY_MAX_IN_FLIGHT),
            request_bytes=config.get(options.SERVER_REQUEST_MAX_SIZE),
            token_bytes=config.get(options.SERVER_QUOTA_BYTES),
        )
        self.service = FlightService(
            store,
            settings.tokens,
            host=settings.host,
            port=self.keeper.port,
            budget=budget,
            audit=audit,
            quotas=StreamQuotas(config.get(options.SERVER_QUOTA_STREAMS)),
            writers=WriterQuotas(config.get(options.SERVER_QUOTA_WRITERS)),
            is_open=False,
            behind=inner,
        )
        try:
            self.keeper.start()
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        return self.keeper.port

    def close(self) -> None:
        """Ends all connections. What is in work ends with the process: it may wait for a disk."""
        self.keeper.stop()
        threading.Thread(target=self.service.shutdown, daemon=True).start()

    def _refused(self, cause: str, peer: str, text: str) -> None:
        self._audit.flight("nobody", peer, f"Flight {text.partition(':')[0]}", None, cause, is_change=False)


def _make_inner() -> Path:
    try:
        return make_socket_folder() / "flight"
    except OSError as error:
        reason = f"a folder for Flight's socket cannot be made: {error}; TMPDIR names another place"
        raise InvalidConfig(where="the temporary folder", reason=reason) from error


def _limits(config: Config) -> GateLimits:
    return GateLimits(
        batch_bytes=config.get(options.SERVER_REQUEST_MAX_SIZE),
        ticket_bytes=config.get(options.SERVER_FLIGHT_MAX_TICKET),
        connections=config.get(options.SERVER_FLIGHT_MAX_CONNECTIONS),
        connections_per_peer=config.get(options.SERVER_FLIGHT_MAX_CONNECTIONS_PER_PEER),
        streams=config.get(options.SERVER_QUOTA_STREAMS),
        header_s=config.get(options.SERVER_FLIGHT_HEADER_TIME).total_seconds(),
        idle_s=config.get(options.SERVER_FLIGHT_IDLE_TIME).total_seconds(),
    )


def _secrets(config: Config, settings: ServerSettings) -> GateSecrets:
    pair = settings.tls.pair() if settings.tls else None
    return GateSecrets(
        tokens=tuple(config.get(options.SERVER_TOKENS)),
        token_file=settings.token_file,
        certificate=None if pair is None else pair.certificate,
        key=None if pair is None else pair.key,
    )
