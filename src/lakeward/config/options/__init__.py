# SPDX-License-Identifier: Apache-2.0
"""Every option, once. Keys and defaults are Fluss's where Fluss has one; `fluss=` says where ours differ. To add one:
add a constant in the file of its reader, use it through `config.get(...)`, run `make generate`."""

from __future__ import annotations

from lakeward.config.option import Family, Scope

# isort: off
# In the order of the reference.
from lakeward.config.options.server import *  # noqa: F403
from lakeward.config.options.lake import *  # noqa: F403
from lakeward.config.options.logs import *  # noqa: F403
from lakeward.config.options.keys import *  # noqa: F403
from lakeward.config.options.contract import *  # noqa: F403
from lakeward.config.options.coordinator import *  # noqa: F403
from lakeward.config.options.job import *  # noqa: F403
from lakeward.config.options.client import *  # noqa: F403
from lakeward.config.options.choices import *  # noqa: F403
from lakeward.config.options.declare import ALL as ALL

# isort: on

FAMILIES: tuple[Family, ...] = (
    Family(
        prefix="datalake.<format>.",
        help="Settings of that lake plugin, handed to it without the prefix.",
        scope=Scope.SERVER,
    ),
    Family(
        prefix="lakes.<lake>.",
        help="A lake: `format`, `pool`, its plugin's settings, and `table.datalake.*` defaults of tables there.",
        scope=Scope.SERVER,
    ),
    Family(
        prefix="table.datalake.lakes.<lake>.",
        help="A `table.datalake.*` option of the table's side in one lake: `freshness`, `pool`, `priority` and so on.",
        scope=Scope.TABLE,
    ),
    Family(
        prefix="table.datalake.changelog.",
        help="A `table.datalake.*` option of the table's changelog: `freshness`, `pool`, `priority` and so on.",
        scope=Scope.TABLE,
    ),
    Family(
        prefix="spark.",
        help="Handed to Spark as they are. Keys with capitals cannot be environment variables.",
        scope=Scope.JOB,
    ),
)
