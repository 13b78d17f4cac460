# SPDX-License-Identifier: Apache-2.0
"""The file that a server reads its tokens from: read again when it changes, so that a token can be taken back while the
server runs.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import InvalidConfig

if TYPE_CHECKING:
    from lakeward.protocol.auth import Token

log = logging.getLogger(__name__)
KEY = "server.token-file"


class TokenFile:
    """Threads share it. A file that cannot be read, or not as tokens, leaves those in force that were read last."""

    def __init__(self, path: Path) -> None:
        """Raises `InvalidConfig`, also for a file without any token: that would let everybody in."""
        self._path, self._lock = path, threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()
        try:
            self._read(self._stamp())
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(where=KEY, reason=str(error)) from error
        if not self._tokens:
            raise InvalidConfig(where=KEY, reason=f"{path} names no token; write one name:role:secret a line")

    def current(self) -> tuple[Token, ...]:
        """A look at the file's stamp, and a read when it is another."""
        with self._lock:
            try:
                stamp = self._stamp()
                if stamp != self._seen:
                    self._read(stamp)
                    log.info("%s was read again: %d tokens", self._path, len(self._tokens))
            except (OSError, UnicodeDecodeError, InvalidConfig) as error:
                log.warning("%s cannot be read, the tokens before it stay: %s", self._path, error)
            return self._tokens

    def _stamp(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self, stamp: tuple[int, int, int]) -> None:
        from lakeward.protocol.auth import Token

        self._seen = stamp
        lines = [line.strip() for line in self._path.read_text().splitlines()]
        self._tokens = tuple(Token.parse(line) for line in lines if line and not line.startswith("#"))
