# SPDX-License-Identifier: Apache-2.0
"""A process without a format's library: jobs there tell of the formats that are left."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import logging, sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # an import of a module that is None there fails as if it were missing
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from lakeward.tiering.job.formats import openable_formats
print(*openable_formats())
"""


def test_formats_without_their_library_are_left_out_and_named_with_their_extra() -> None:
    child = [sys.executable, "-c", WITHOUT, "pypaimon", "lance", "pyiceberg"]
    said, formats = subprocess.run(child, capture_output=True, text=True, timeout=300, check=True).stdout.splitlines()
    assert formats == "delta hudi memory"
    assert said == (
        "formats whose tables are left to other jobs: iceberg needs pyiceberg (pip install 'lakeward[iceberg]'); "
        "lance needs lance (pip install 'lakeward[lance]'); paimon needs pypaimon (pip install 'lakeward[paimon]')"
    )
