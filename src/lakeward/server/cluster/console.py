# SPDX-License-Identifier: Apache-2.0
"""Serves the page of a cluster: the doors, checks and pages of a server, without a server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.config import Config, options
from lakeward.errors import InvalidConfig
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.hot.fluss.tiernow import InLake, tier_now
from lakeward.model import SystemClock, TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.routes import TIER_NOW
from lakeward.server.admission.auth import require
from lakeward.server.admission.httpdoor import HttpDoor, bind_listener
from lakeward.server.admission.settings import ServerSettings
from lakeward.server.app import PAGE_MODULES, create_app
from lakeward.server.cluster.source import ClusterSource
from lakeward.server.feed.history import SAMPLE_S
from lakeward.server.feed.pagesource import PageSource
from lakeward.server.messages import answer
from lakeward.server.services import PageServices
from lakeward.server.show.sampler import Sampler

if TYPE_CHECKING:
    from lakeward.server.cluster.live import ClusterLive

log = logging.getLogger(__name__)

LONGEST_S = 120.0
"""Each call that waits has a thread."""


@dataclass(frozen=True, kw_only=True)
class ConsoleServices(PageServices):
    facts: PageSource

    @property
    def source(self) -> PageSource:
        return self.facts


def tiering_router(services: PageServices, bring: Callable[[TablePath, float], InLake]) -> APIRouter:
    router = APIRouter(tags=["tiering"])

    @router.post(TIER_NOW, dependencies=[require(services.tokens, Role.WRITE)])
    async def tier_now(
        table: str, limit_s: Annotated[float, Query(gt=0, le=LONGEST_S, allow_inf_nan=False)] = LONGEST_S
    ) -> JSONResponse:
        """Answers when everything acknowledged before the call is in the lake; `timed-out` at the limit."""
        return answer(await run_in_threadpool(bring, TablePath.parse(table), limit_s))

    return router


def _open_live(config: Config, settings: ServerSettings, plugin: FlussPlugin) -> ClusterLive | None:
    """None where PyIceberg is not installed, or where another console has the folder: pages are served all the same."""
    if find_spec("pyiceberg") is None:
        return None
    from lakeward.server.cluster.live import ClusterLive

    try:
        return ClusterLive(config, settings.data, plugin)
    except (InvalidConfig, OSError) as error:
        log.warning("warehouse `live` is not served: %s", error)
        return None


class Console:
    """`start` returns once the page is served and the cluster was looked at once; `stop` is safe to repeat."""

    def __init__(self, config: Config, plugin: FlussPlugin, *, is_job: bool = False) -> None:
        """`is_job`: a job runs here, so that what is asked for is done. Raises `InvalidConfig`, and `InsecureBinding`
        for an open address without a token."""
        self._config, self._settings, clock = config, ServerSettings.of(config), SystemClock()
        self.source = ClusterSource(plugin, clock)
        self._live = _open_live(config, self._settings, plugin)
        services = ConsoleServices(
            facts=self.source,
            live=None if self._live is None else self._live.warehouse,
            tokens=self._settings.tokens,
            clock=clock,
            callers=self._settings.callers,
            max_requests=config.get(options.SERVER_QUOTA_REQUESTS),
            max_body_bytes=config.get(options.SERVER_HTTP_MAX_BODY),
            background=lambda: [
                self.source.thread.heartbeat(),
                self._sampler.heartbeat(),
                *([] if self._live is None else [self._live.warehouse.thread.heartbeat()]),
            ],
        )
        self._sampler = Sampler(services)
        self._listener = bind_listener(self._settings.host, self._settings.port)
        app = create_app(services, PAGE_MODULES)
        if self._live is not None:
            app.include_router(self._live.router(self._settings.tokens))
        if is_job:
            self.source.actions = ("tier-now",)
            app.include_router(tiering_router(services, partial(tier_now, plugin)))
        self._http = HttpDoor(config, self._settings.tls, app, self._listener)
        self.url = self._settings.http_url(self._listener.getsockname()[1])

    @property
    def is_serving(self) -> bool:
        return self._http.is_serving

    def start(self) -> None:
        """Raises what the first look raises."""
        try:
            self.source.look()
            if self._live is not None:
                self._live.start()
        except BaseException:
            self._listener.close()
            self._close_live()
            raise
        self.source.thread.start()
        self._sampler.start()
        self._http.start()

    def stop(self) -> None:
        self._sampler.stop(SAMPLE_S)
        self.source.thread.stop(SAMPLE_S)
        self._http.stop(self._config.get(options.SERVER_SHUTDOWN_GRACE).total_seconds() + 5)
        self._close_live()

    def _close_live(self) -> None:
        if self._live is not None:
            self._live.warehouse.close()
            self._live = None
