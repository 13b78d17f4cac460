# SPDX-License-Identifier: Apache-2.0
"""What a worker gets at a time when tests run on several: a file, or a whole folder that shares something dear."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

ON_ONE_WORKER = ("tests/fluss/",)
"""One cluster serves all tests of the folder."""
ONE_SESSION = tuple(
    f"tests/spark/test_{name}"
    for name in ("case_names", "formats", "oracle_play", "streaming", "types", "union_read", "verify")
)
"""One Spark session serves all tests of these files: to start and warm another takes 20 s of CPU."""
WAITING_WORKERS = 2
"""How many take what waits for processes of its own: as many as there are cores."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist comes without types
    """Whole files, so that fixtures of a module are made once; in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ONE_SESSION):
            return ONE_SESSION[0]
        return next((folder for folder in ON_ONE_WORKER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    def _assign_work_unit(self, node: Any) -> None:
        """The third worker and those after it begin at the other end, with tests that start no process: they compute
        while the first two wait for theirs."""
        if int(node.gateway.id.removeprefix("gw")) >= WAITING_WORKERS:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
