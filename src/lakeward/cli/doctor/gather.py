# SPDX-License-Identifier: Apache-2.0
"""Asks a server, and this machine, for what the checks look at."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward import __version__
from lakeward.cli.doctor.facts import Facts, HereFacts
from lakeward.errors import RemoteError
from lakeward.model import TableInfo
from lakeward.protocol import routes
from lakeward.protocol.codec import decode
from lakeward.protocol.facts import ProbeAnswer, ServerFacts
from lakeward.protocol.operate import AdmissionAnswer, AdmissionQuery, CoordinatorStatus
from lakeward.protocol.routes import PROTOCOL
from lakeward.protocol.views import RoundStatus

if TYPE_CHECKING:
    from lakeward.config import Config
    from lakeward.hot.embedded.remote.http import ServerConnection

ROUNDS = 1_000


def gather(
    door: ServerConnection,
    *,
    probe: bool = False,
    table: str | None = None,
    has_token: bool = False,
    config: Config | None = None,
) -> Facts:
    """`config`: of this machine, whose jobs read it too. Raises what the server refuses with, and `RemoteError` for
    answers that no Lakeward server sends."""
    try:
        return _gather(door, probe, table, has_token, config)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        text = f"what no Lakeward server sends ({type(error).__name__}: {str(error)[:200]})"
        raise RemoteError(remote_code=door.url, text=text) from error


def _gather(door: ServerConnection, probe: bool, table: str | None, has_token: bool, config: Config | None) -> Facts:
    info = door.info(fresh=True)
    before = time.time()
    server = decode(ServerFacts, door.ask("GET", routes.FACTS))
    after = time.time()
    here = HereFacts(
        version=__version__,
        protocol=PROTOCOL,
        now_ms=round((before + after) * 500),
        answer_ms=round((after - before) * 1000),
        server_url=door.url,
        has_token=has_token,
        spark_settings={**spark_settings(), **_spark_of(config)},
    )
    status = decode(CoordinatorStatus, door.ask("GET", routes.STATUS))
    listed = [TableInfo.from_json(t) for t in door.ask("GET", routes.TABLES)["tables"]]
    params = {"limit": ROUNDS, **({"table": table} if table else {})}
    has_slots = any(j.live and j.slots for j in status.jobs)
    return Facts(
        here=here,
        server=server,
        status=status,
        tables={str(t.path): t for t in listed},
        rounds=[decode(RoundStatus, r) for r in door.ask("GET", routes.ROUNDS, params=params)["rounds"]],
        admission=door.call(AdmissionAnswer, "POST", routes.ADMISSION, AdmissionQuery()) if has_slots else None,
        probe=_probe(door, table) if probe else None,
        lake_options={**_lake_of(config, info.lake_format), **info.lake_options},
    )


def _spark_of(config: Config | None) -> dict[str, str]:
    return {} if config is None else {f"spark.{key}": value for key, value in config.below("spark.").items()}


def _lake_of(config: Config | None, lake: str | None) -> dict[str, str]:
    """Settings that the server does not publish, if they are set here too."""
    return {} if config is None or lake is None else config.below(f"datalake.{lake}.")


def _probe(door: ServerConnection, table: str | None) -> ProbeAnswer:
    return decode(ProbeAnswer, door.ask("POST", routes.PROBE, params={"table": table} if table else {}, timeout_s=300))


def spark_settings() -> dict[str, str]:
    """Settings of spark-defaults.conf in SPARK_CONF_DIR or below SPARK_HOME; empty without that file."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    file = Path(folder) / "spark-defaults.conf"
    if not folder or not file.is_file():
        return {}
    lines = (line.strip().replace("=", " ", 1).split(None, 1) for line in file.read_text().splitlines())
    return {parts[0]: parts[1].strip() for parts in lines if len(parts) == 2 and not parts[0].startswith("#")}
