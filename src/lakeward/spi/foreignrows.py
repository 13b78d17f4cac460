# SPDX-License-Identifier: Apache-2.0
"""Policies for rows that other engines insert into a lake table."""

from __future__ import annotations

from lakeward.config import Config, options
from lakeward.config.options import ForeignRows
from lakeward.model import TableInfo


def removes_foreign_rows(table: TableInfo) -> bool:
    """This one property alone is read: a Fluss table may have `table.*` keys that are not ours."""
    option = options.TABLE_DATALAKE_FOREIGN_ROWS
    given = {k: v for k, v in table.descriptor.properties.items() if k == option.key}
    return Config().for_table(given).get(option) is ForeignRows.REMOVE
