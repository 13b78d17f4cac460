# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that can cut its connections: what a bad network does, at a moment of the test's choice."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable


class CuttingProxy:
    """Listens on a free loopback port and forwards to `target`. `on_bytes(sent_by_server, count)` sees what passes."""

    def __init__(self, target: tuple[str, int], on_bytes: Callable[[bool, int], None] | None = None) -> None:
        self.target, self.on_bytes = target, on_bytes
        self.cuts = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Resets every connection there is now; new ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
            self.cuts += bool(pairs)
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the thread that accepts
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._forward, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(far, near, True), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, from_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.on_bytes is not None:
                    self.on_bytes(from_server, len(data))
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
