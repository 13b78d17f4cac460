# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command that does not leave by itself; commands that stop other processes are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

DEAF = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from lakeward.cli.run.interrupt import guard
guard(sys.argv[1:], limit_s=0.2)
try:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(600)
"""


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A command that does not leave, and what it says of its handler of Ctrl-C: True if that is Python's own."""
    child = subprocess.Popen([sys.executable, "-c", DEAF, *arguments], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_a_command_that_stays_is_ended() -> None:
    child, is_plain = start("write", "shop.orders", "-")
    with child:
        assert is_plain == "False"
        child.send_signal(signal.SIGINT)
        assert child.wait(120) == 130


@pytest.mark.parametrize("name", ["server", "demo"])
def test_one_that_stops_other_processes_takes_its_time(name: str) -> None:
    child, is_plain = start(name)
    with child:
        child.kill()
    assert is_plain == "True"
