# SPDX-License-Identifier: Apache-2.0
"""Serves the page of a cluster: the doors, checks and pages of a server, without a server."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.config import Config, options
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.model.clock import SystemClock
from lakeward.server.app import PAGE_MODULES, create_app
from lakeward.server.cluster.source import ClusterSource
from lakeward.server.history import SAMPLE_S
from lakeward.server.httpdoor import HttpDoor, bind_listener
from lakeward.server.pagesource import PageSource
from lakeward.server.sampler import Sampler
from lakeward.server.services import PageServices
from lakeward.server.settings import ServerSettings


@dataclass(frozen=True, kw_only=True)
class ConsoleServices(PageServices):
    facts: PageSource

    @property
    def source(self) -> PageSource:
        return self.facts


class Console:
    """`start` returns once the page is served and the cluster was looked at once; `stop` is safe to repeat."""

    def __init__(self, config: Config, plugin: FlussPlugin) -> None:
        """Raises `InvalidConfig`, and `InsecureBinding` for an open address without a token."""
        self._config, self._settings, clock = config, ServerSettings.of(config), SystemClock()
        self.source = ClusterSource(plugin, clock)
        services = ConsoleServices(
            facts=self.source,
            tokens=self._settings.tokens,
            clock=clock,
            callers=self._settings.callers,
            max_requests=config.get(options.SERVER_QUOTA_REQUESTS),
            max_body_bytes=config.get(options.SERVER_HTTP_MAX_BODY),
            background=lambda: [self.source.thread.heartbeat(), self._sampler.heartbeat()],
        )
        self._sampler = Sampler(services)
        self._listener = bind_listener(self._settings.host, self._settings.port)
        self._http = HttpDoor(config, self._settings.tls, create_app(services, PAGE_MODULES), self._listener)
        self.url = self._settings.http_url(self._listener.getsockname()[1])

    @property
    def is_serving(self) -> bool:
        return self._http.is_serving

    def start(self) -> None:
        """Raises what the first look raises."""
        try:
            self.source.look()
        except BaseException:
            self._listener.close()
            raise
        self.source.thread.start()
        self._sampler.start()
        self._http.start()

    def stop(self) -> None:
        self._sampler.stop(SAMPLE_S)
        self.source.thread.stop(SAMPLE_S)
        self._http.stop(self._config.get(options.SERVER_SHUTDOWN_GRACE).total_seconds() + 5)
