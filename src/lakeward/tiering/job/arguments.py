# SPDX-License-Identifier: Apache-2.0
"""The job's command line without the `cli` extra: what `python -m lakeward.tiering` and spark-submit take."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lakeward.config import options, resolve
from lakeward.errors import InvalidConfig, LakewardError
from lakeward.model import escape_log
from lakeward.protocol.oauth2 import ClientCredentials
from lakeward.protocol.token import TokenSource
from lakeward.tiering.job.job import TieringJob, run_job
from lakeward.tiering.work.options import TieringOptions


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses, runs the job, returns the exit code. A wrong start is one line on standard error."""
    arguments_read = _parser().parse_args(arguments)
    try:
        run(
            server=arguments_read.server,
            fluss=arguments_read.fluss,
            fluss_user=arguments_read.fluss_user,
            deletes=arguments_read.deletes,
            name=arguments_read.name,
            pool=arguments_read.pool,
            slots=arguments_read.slots,
            master=arguments_read.master,
            conf=arguments_read.conf,
            token_file=arguments_read.token_file,
        )
    except LakewardError as error:
        print(f"lakeward: {error.message}", file=sys.stderr)
        return 1
    return 0


def run(
    *,
    server: str | None = None,
    fluss: str | None = None,
    fluss_user: str | None = None,
    deletes: str | None = None,
    name: str | None = None,
    pool: str | None = None,
    slots: int | None = None,
    master: str | None = None,
    conf: Sequence[str] = (),
    token_file: str | None = None,
    config_file: Path | None = None,
    started: Callable[[TieringJob], None] = lambda _job: None,
    as_json: bool = False,
) -> None:
    """All three doors end here. What is None comes from file, environment or default."""
    _quiet()
    for handler in logging.getLogger().handlers if as_json else ():
        handler.setFormatter(JsonLines())
    arguments: dict[str, Any] = {
        "client.server": server,
        "tiering.name": name,
        "tiering.pool": pool,
        "tiering.slots": slots,
        "tiering.master": master,
        "client.token-file": token_file,
    }
    config = resolve(arguments={k: v for k, v in arguments.items() if v is not None}, file=config_file)
    # A file named as argument comes before a token that stands in the environment.
    token = None if token_file else config.get(options.CLIENT_TOKEN)
    file = config.get(options.CLIENT_TOKEN_FILE)
    login = ClientCredentials.of_config(config) if token is None and file is None else None
    (login or TokenSource.of(token, file)).share()
    spark = {**{f"spark.{k}": v for k, v in config.below("spark.").items()}, **parse_conf(conf)}
    tiering_options = TieringOptions.from_config(config, spark)
    run_job(tiering_options if fluss is None else tiering_options.with_fluss(fluss, fluss_user, deletes), started)


class JsonLines(logging.Formatter):
    """A log line as a JSON object; a stack is one of its texts."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at_ms": int(record.created * 1000), "level": record.levelname.lower(), "from": record.name}
        stack = {"stack": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**line, "words": record.getMessage(), **stack})


def _quiet() -> None:
    """The job's own words, and of its libraries only what a person has to act on."""
    logging.basicConfig(level=logging.INFO)
    escape_log()
    for library, level in (("py4j", logging.ERROR), ("pyiceberg", logging.WARNING)):
        logging.getLogger(library).setLevel(level)
    # PySpark says so whenever it starts; no pandas is used here.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """`k=v` pairs of `--conf`. Raises `InvalidConfig` for anything else."""
    conf: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidConfig(where=f"--conf {pair}", reason="write it as spark.key=value")
        conf[key] = value
    return conf


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lakeward tier", description="Runs a tiering job: rounds from the hot store into the lake."
    )
    for flag, help in HELP.items():
        kind: Mapping[str, Any] = (
            {"action": "append", "default": []} if flag == "conf" else {"type": int} if flag == "slots" else {}
        )
        parser.add_argument(f"--{flag}", dest=flag.replace("-", "_"), help=help, **kind)
    return parser


HELP = {
    "server": "The server's HTTP address.",
    "fluss": "host:port of an Apache Fluss server, in place of --server: tiers the tables of that cluster.",
    "fluss-user": "User at the Fluss cluster (SASL PLAIN); the password comes from LAKEWARD_FLUSS_PASSWORD.",
    "deletes": "With --fluss: how replaced rows go from Iceberg tables, by positions (default) or by equality.",
    "name": "The job's name; a newer instance of the same name takes over.",
    "pool": "The pool of tables this job serves.",
    "slots": "Rounds at the same time.",
    "master": "Spark master: local[*,4], spark://host:7077, yarn, k8s://...",
    "conf": "A Spark setting, key=value; may be given many times.",
    "token-file": "File that holds the token's secret part; else LAKEWARD_TOKEN.",
}
