# SPDX-License-Identifier: Apache-2.0
"""What a worker gets at a time when tests run on several: a file, or a whole folder that shares something dear."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

ON_ONE_WORKER = ("tests/fluss/",)
"""One cluster serves all tests of the folder."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist comes without types
    """Whole files, so that fixtures of a module are made once; in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in ON_ONE_WORKER if nodeid.startswith(folder)), nodeid.partition("::")[0])
