# SPDX-License-Identifier: Apache-2.0
"""What a compaction would do with a table's lake files, for the table's page. Reads the lake's newest file list."""

from __future__ import annotations

from typing import Any

from lakeward.errors import TableBusy
from lakeward.model.side import SideName
from lakeward.model.table import TablePath
from lakeward.server.services import Services
from lakeward.tiering.compact.ground import load_compaction
from lakeward.tiering.compact.plan import describe_compaction
from lakeward.tiering.compact.shape import describe_shape
from lakeward.tiering.job.options import TieringOptions


def explain_compaction(services: Services, path: TablePath, side: SideName | None) -> dict[str, Any]:
    """By the default policy: a job's own settings are the job's. Raises `TableBusy` where nothing can be rewritten."""
    board, clock = services.coordinator.board, services.clock
    with board.lock:
        found = board.find(path, side)
        storage = board.lake_of(found)
    if storage is None or not storage.capabilities.rewrites:
        raise TableBusy(table=found.label, reason="its lake format has no files that Lakeward rewrites")
    ground = load_compaction(found.info, storage, TieringOptions(server=""), clock)
    return {
        "table": str(path),
        "files": ground.plan.files,
        "groups": describe_compaction(ground.plan),
        **describe_shape(ground.files, ground.plan, ground.committed_at_ms, clock.now_ms()),
    }
