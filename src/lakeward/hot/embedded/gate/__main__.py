# SPDX-License-Identifier: Apache-2.0
"""The gate's process: settings come as a line on standard input, whose end is its own; what there is to log goes to the
server as lines on standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.hot.embedded.gate.gate import Gate
from lakeward.hot.embedded.gate.rules import Rules
from lakeward.hot.embedded.gate.settings import GateSettings
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.tokenfile import TokenFile

_PER_MINUTE = 20
"""Lines of one cause: whoever can make the gate complain must not keep the server busy with it."""


class Teller:
    """Lines for the server's log. One that does not fit into the pipe is left out."""

    def __init__(self, out: int) -> None:
        self._out, self._minute = out, 0
        self._told: Counter[str] = Counter()
        os.set_blocking(out, False)

    def tell(self, cause: str, peer: str, text: str) -> None:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._told = minute, Counter()
        self._told[cause] += 1
        if self._told[cause] <= _PER_MINUTE:
            self.write({"cause": cause, "peer": peer, "text": text[:1000]})

    def write(self, line: dict[str, str]) -> None:
        with suppress(OSError):
            os.write(self._out, json.dumps(line).encode() + b"\n")


def make_context(certificate: str, key: str, folder: Path) -> ssl.SSLContext:
    """As gRPC's own: TLS 1.2 or newer, HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    with _as_file(certificate, folder) as certificate_file, _as_file(key, folder) as key_file:
        context.load_cert_chain(certificate_file, key_file)
    return context


@contextmanager
def _as_file(text: str, folder: Path) -> Iterator[str]:
    """OpenSSL takes files alone: one in memory, or where there is none, this user's own for a moment."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile("w", dir=folder) as named:
        named.write(text)
        named.flush()
        yield named.name


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to the server too, which ends in order and this with it
    settings = GateSettings.of_line(sys.stdin.buffer.readline())
    teller = Teller(sys.stdout.fileno())
    folder = Path(settings.inner).parent
    try:
        file = None if settings.token_file is None else TokenFile(Path(settings.token_file))
        rules = Rules(
            tokens=TokenSet.parse(settings.tokens, file),
            batch_bytes=settings.limits.batch_bytes,
            ticket_bytes=settings.limits.ticket_bytes,
        )
        tls = None
        if settings.certificate is not None and settings.key is not None:
            tls = make_context(settings.certificate, settings.key, folder)
    except (LakewardError, OSError, ValueError) as error:
        teller.write({"failed": str(error)})
        return
    listener = socket.socket(fileno=settings.listener)
    teller.write({"ready": str(os.getpid())})
    Gate(listener, settings.inner, rules, settings.limits, tls, sys.stdin.fileno(), teller.tell).run()
    shutil.rmtree(folder, ignore_errors=True)  # a server that was killed could not


if __name__ == "__main__":
    main()
