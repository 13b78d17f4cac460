# SPDX-License-Identifier: Apache-2.0
"""Options for rows that arrive as text and do not fit their table."""

from __future__ import annotations

from lakeward.config.kinds import choice, integer
from lakeward.config.options.choices import SchemaContract
from lakeward.config.options.declare import TABLE, option

TABLE_SCHEMA_CONTRACT = option(
    "table.schema.contract",
    choice(SchemaContract),
    "strict",
    "CSV and JSON rows that do not fit: strict refuses them, evolve adds nullable columns for names that the table "
    "does not have, quarantine stores them with the reason in the log table <table>__quarantine.",
    TABLE,
    fluss="not there",
)
TABLE_SCHEMA_EVOLVE_MAX_COLUMNS = option(
    "table.schema.evolve.max-columns",
    integer(minimum=1),
    "200",
    "With evolve: rows add no column to a table that has this many.",
    TABLE,
    fluss="not there",
)
TABLE_SCHEMA_QUARANTINE_MAX_ROWS_PER_MINUTE = option(
    "table.schema.quarantine.max-rows-per-minute",
    integer(minimum=1),
    "10000",
    "With quarantine: writes with more rows that do not fit are refused whole, and a tile turns red.",
    TABLE,
    fluss="not there",
)
