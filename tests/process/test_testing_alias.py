# SPDX-License-Identifier: Apache-2.0
"""`lakeward.testing`, the documented name of the test kit, in a process that imports it first."""

from __future__ import annotations

import subprocess
import sys


def test_the_old_name_works_when_it_is_imported_first() -> None:
    program = (
        "from lakeward.testing.hots import HotContract; from lakeward.testing import faults, clock\n"
        "import lakeward_testing.faults, lakeward_testing.hots\n"
        "assert faults is lakeward_testing.faults and HotContract is lakeward_testing.hots.HotContract"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
