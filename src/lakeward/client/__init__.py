# SPDX-License-Identifier: Apache-2.0
"""The Python client: `connect()` gives a `Client`; tables are made over HTTP, rows travel over Arrow Flight."""

from __future__ import annotations

from lakeward.client.client import Client
from lakeward.client.table import Table

__all__ = ["Client", "Table", "connect"]


def connect(url: str = "http://127.0.0.1:9050", *, token: str | None = None, ca: str | None = None) -> Client:
    """A client of the server at `url`. The token defaults to LAKEWARD_TOKEN, `ca` (a PEM file to trust) to LAKEWARD_TLS_CA.

    Nothing is sent before the first call."""
    return Client(url, token=token, ca=ca)
