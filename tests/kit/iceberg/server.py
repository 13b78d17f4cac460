# SPDX-License-Identifier: Apache-2.0
"""A server with nothing but the Iceberg REST catalog, in a process of its own: `python -m tests.kit.iceberg.server`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx

from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit import ROOT


def main(arguments: Sequence[str]) -> None:
    """`PORT OPTIONS TOKENS`, the last two as JSON."""
    import uvicorn
    from fastapi import FastAPI

    from lakeward.lake.iceberg.plugin import load
    from lakeward.protocol.auth import TokenSet
    from lakeward.server.iceberg.catalog import iceberg_router

    port, options, tokens = int(arguments[0]), json.loads(arguments[1]), json.loads(arguments[2])
    app = FastAPI()
    app.include_router(iceberg_router(load(options).connection.catalog, TokenSet.parse(tokens)))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


@contextmanager
def serving(
    options: Mapping[str, str], tokens: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The URL of a running catalog server; it ends with the block."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tests.kit.iceberg.server",
        str(port),
        json.dumps(dict(options)),
        json.dumps(list(tokens)),
    ]
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, cwd=ROOT)
    url = f"http://127.0.0.1:{port}/iceberg"
    try:
        wait_until(lambda: _answers(process, url), what="the catalog server", tolerate=(httpx.TransportError,))
        yield url
    finally:
        process.terminate()
        process.wait(120)


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    assert process.poll() is None, "the catalog server ended"
    return httpx.get(f"{url}/v1/config", timeout=120).status_code in (200, 401)


if __name__ == "__main__":
    main(sys.argv[1:])
