# SPDX-License-Identifier: Apache-2.0
"""A probe of storage: may this process write and delete where a table's data is?"""

from __future__ import annotations

import uuid

from lakeward.lake.tablefiles import TableFiles
from lakeward.spi.lake.maintenance import PROBE


def probe_folder(files: TableFiles, folder: str) -> None:
    """Safe to repeat. Raises `OSError`."""
    path = f"{folder}/{PROBE}{uuid.uuid4().hex}"
    files.put(path, "lakeward doctor --probe")
    files.delete(path)
