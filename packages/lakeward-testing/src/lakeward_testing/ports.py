# SPDX-License-Identifier: Apache-2.0
"""Ports that nobody uses."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections: none of those takes one before its server does."""
_chance = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago. Where a server can bind port 0 itself, let it."""
    while True:
        port = _chance.choice(PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port
