# SPDX-License-Identifier: Apache-2.0
"""Typed options: each once, in `options`; `resolve()` puts file, environment and arguments together.

from lakeward.config import options, resolve

config = resolve(arguments={"server.port": 9060})
config.get(options.SERVER_PORT)               # int
config.get(options.TABLE_DATALAKE_FRESHNESS)  # timedelta
"""

from lakeward.config.config import Config, Resolved, resolve
from lakeward.config.option import Option, Scope

__all__ = ["Config", "Option", "Resolved", "Scope", "resolve"]
