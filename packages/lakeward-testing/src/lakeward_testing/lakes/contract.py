# SPDX-License-Identifier: Apache-2.0
"""The whole lake contract."""

from __future__ import annotations

from lakeward_testing.lakes.changelogs import ChangelogContract
from lakeward_testing.lakes.commits import CommitContract
from lakeward_testing.lakes.ddl import DdlContract
from lakeward_testing.lakes.foreignchanges import ForeignChangeContract
from lakeward_testing.lakes.rewrites import RewriteContract
from lakeward_testing.lakes.timepartitions import TimePartitionContract
from lakeward_testing.lakes.types import TypeContract
from lakeward_testing.lakes.upkeep import UpkeepContract
from lakeward_testing.lakes.upserts import UpsertContract


class LakeContract(
    DdlContract,
    TypeContract,
    CommitContract,
    TimePartitionContract,
    UpsertContract,
    ForeignChangeContract,
    RewriteContract,
    UpkeepContract,
    ChangelogContract,
):
    """What any lake plugin must do. Subclass it, name the class `Test...`, give the fixture `lake` and the hooks:

        class TestMyLake(LakeContract):
            @pytest.fixture
            def lake(self, tmp_path): return load({"warehouse": str(tmp_path)})
            def foreign_commit(self, lake, table): ...
            def foreign_rewrite(self, lake, table): ...
            def foreign_insert(self, lake, table, rows): ...
            def foreign_expire(self, lake, table): ...
            def roll_back(self, lake, table, snapshot_id): ...

    Capabilities that a lake does not claim turn their tests into strict expected failures; `gaps` declares single ones.
    """
