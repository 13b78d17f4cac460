# SPDX-License-Identifier: Apache-2.0
"""Tokens and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

_LOCAL = ("127.0.0.1", "localhost", "::1")


def check(facts: Facts) -> Iterator[Diagnosis]:
    server, address = facts.server, urlsplit(facts.here.server_url)
    if not server.is_loopback and not server.has_tls and address.scheme != "https":
        yield _finding(
            "no TLS on an open address",
            "Tokens and rows can be read on the way.",
            "server.tls.cert and server.tls.key in lakeward.toml, or TLS in front of it",
        )
    if not server.is_loopback and not server.has_tokens:
        yield _finding(
            "no tokens on an open address",
            "Whoever reaches it may drop tables.",
            "server.tokens, or server.token-file, in lakeward.toml",
        )
    if facts.here.has_token and address.scheme == "http" and address.hostname not in _LOCAL:
        yield _finding(f"a token goes to {facts.here.server_url}", "It can be read on the way.", "an https:// address")


def _finding(figure: str, why: str, mend: str) -> Diagnosis:
    return Diagnosis(check="security", level=Level.WRONG, about="server", figure=figure, why=why, mend=mend)
