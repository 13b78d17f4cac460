# SPDX-License-Identifier: Apache-2.0
"""Flight in a process and in one that was forked from it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.hot.embedded.serve.standin import serving

FORKING = """
import os, sys
from tests.unit.hot.embedded.serve.standin import client_at
client = client_at(int(sys.argv[1]))
if sys.argv[2] == "used":
    client.store.list_tables()
child = os.fork()
if not child:
    try:
        print("child:", len(client.store.list_tables()), flush=True)
    except BaseException as error:
        print("child:", error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent:", len(client.store.list_tables()))
"""


@pytest.mark.parametrize(("used", "child"), [("unused", "child: 1"), ("used", "forked from used Flight already")])
def test_a_process_forked_before_the_first_call_has_its_own_connection(used: str, child: str) -> None:
    """As PySpark's workers are. After the first call gRPC itself would hang in the child: that is said in words."""
    with serving() as served:
        served.table()
        command = [sys.executable, "-W", "ignore", "-c", FORKING, str(served.port), used]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert child in run.stdout
    assert "parent: 1" in run.stdout
