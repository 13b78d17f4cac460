# SPDX-License-Identifier: Apache-2.0
"""Options of lakes and of tables in lakes."""

from __future__ import annotations

from lakeward.config.kinds import boolean, choice, duration, integer, lake_or_none, ratio, size, text, word_list
from lakeward.config.options.choices import ForeignRows
from lakeward.config.options.declare import JOB, MS, SECOND, SERVER, TABLE, option, optional

DATALAKE_ENABLED = optional(
    "datalake.enabled",
    boolean(),
    "true when datalake.format is set",
    "Whether this server tiers tables to a lake at all.",
    SERVER,
)
DATALAKE_FORMAT = optional(
    "datalake.format",
    text(),
    "no lake",
    "The lake plugin that tables go to: iceberg, or one that is installed.",
    SERVER,
)
DATALAKE_DEFAULT_LAKE = optional(
    "datalake.default-lake",
    text(),
    "the lake of datalake.format, or the only one",
    "The lake of tables that name none, where several are configured ([lakes.NAME]).",
    SERVER,
)

TABLE_DATALAKE_ENABLED = optional(
    "table.datalake.enabled",
    boolean(),
    "true when the server has a datalake.format",
    "Whether this table is tiered to the lake.",
    TABLE,
    fluss="false",
)
TABLE_DATALAKE_FORMAT = optional(
    "table.datalake.format",
    text(),
    "the server's datalake.format",
    "The table's lake format, fixed when it is created.",
    TABLE,
    alterable=False,
)
TABLE_DATALAKE_LAKES = option(
    "table.datalake.lakes",
    word_list(),
    "",
    "The lakes ([lakes.NAME]) that the table has a side in, each with rounds of its own; the server's default lake if "
    "empty.",
    TABLE,
    fluss="not there: a cluster has one lake",
)
TABLE_DATALAKE_CHANGELOG = option(
    "table.datalake.changelog",
    lake_or_none(),
    "none",
    "The lake that gets every change of the table, in the append-only lake table <table>__changelog; none: no lake.",
    TABLE,
    fluss="not there",
)
TABLE_DATALAKE_CHANGELOG_RETENTION = optional(
    "table.datalake.changelog.retention",
    duration(minimum=SECOND),
    "for ever",
    "How long a change stays in the changelog. Its data files go as a whole, once all of their changes are "
    "older: about an eighth of that time later.",
    TABLE,
    fluss="not there",
)
TABLE_DATALAKE_FRESHNESS = option(
    "table.datalake.freshness",
    duration(minimum=MS),
    "3 min",
    "The longest a row may wait before the lake shows it.",
    TABLE,
    fluss="the same key is the pause between two rounds there; peak lag is longer",
)
TABLE_DATALAKE_MAX_ROUND_DURATION = optional(
    "table.datalake.max-round-duration",
    duration(minimum=MS),
    "half the freshness",
    "A round that takes longer commits what it has and is queued again.",
    TABLE,
    fluss="not there: the freshness itself is the limit",
)
TABLE_DATALAKE_AUTO_MAINTENANCE = option(
    "table.datalake.auto-maintenance",
    boolean(),
    "true",
    "Upkeep of the lake table: compaction and snapshot expiry, where the two options below do not say otherwise.",
    TABLE,
    fluss="not there: the two below stand alone, both false",
)
TABLE_DATALAKE_AUTO_COMPACTION = option(
    "table.datalake.auto-compaction",
    boolean(),
    "true",
    "Whether data files of the lake table are compacted.",
    TABLE,
    fluss="false",
)
TABLE_DATALAKE_CERTIFICATES = option(
    "table.datalake.certificates",
    boolean(),
    "false",
    "Whether each round's snapshot has a certificate, by which `verify --offline` checks the lake without the server.",
    TABLE,
)
TABLE_DATALAKE_AUTO_EXPIRE_SNAPSHOT = option(
    "table.datalake.auto-expire-snapshot",
    boolean(),
    "true",
    "Whether snapshots of the lake table expire by its history.expire.* properties.",
    TABLE,
    fluss="false",
)
TABLE_DATALAKE_FOREIGN_ROWS = option(
    "table.datalake.foreign-rows",
    choice(ForeignRows),
    "stop",
    "What a round does when another engine inserted rows into the lake table of a primary-key table, where a key would "
    "be there twice: stop with an error, or remove them. Rewrites and deletes by others are no inserts.",
    TABLE,
    fluss="not there",
)
TABLE_DATALAKE_SYSTEM_COLUMNS = option(
    "table.datalake.system-columns",
    boolean(),
    "true",
    "Whether the lake table has the columns __bucket, __offset and __timestamp. Without them (Iceberg, Paimon) files "
    "of log tables say their offsets, and rows of primary-key tables are found by key; times of rows are not kept.",
    TABLE,
    alterable=False,
    fluss="not there: false from 1.0 on, true before",
)
TABLE_DATALAKE_READERS = option(
    "table.datalake.readers",
    word_list(),
    "",
    "Engines that will read the lake table, as `databricks, duckdb`: a new Iceberg table gets the lowest format "
    "version, and with it the delete encoding, that all of them read; what one of them cannot read is refused.",
    TABLE,
    fluss="not there",
)
TABLE_DATALAKE_POOL = option(
    "table.datalake.pool", text(), "default", "The pool of jobs that may tier this table.", TABLE
)
TABLE_DATALAKE_PRIORITY = option(
    "table.datalake.priority",
    integer(minimum=-100, maximum=100),
    "0",
    "Under overload tables with a higher number go first.",
    TABLE,
)

COMPACTION_FAN_IN = option(
    "compaction.fan-in",
    integer(minimum=2, maximum=1_000),
    "8",
    "How many files of one size become one: more means fewer rewrites and more files.",
    JOB,
)
COMPACTION_TARGET_SIZE = option(
    "compaction.target-size", size(minimum=1 << 20), "128 mb", "The size that data files are merged up to.", JOB
)
COMPACTION_MAX_DELETED = option(
    "compaction.max-deleted",
    ratio(),
    "0.2",
    "A file is rewritten when more than this share of its rows is deleted; a small one from a quarter of it on.",
    JOB,
)
COMPACTION_MAX_BYTES = option(
    "compaction.max-bytes", size(minimum=1 << 20), "1 gb", "Most bytes that one compaction rewrites.", JOB
)
COMPACTION_MAX_DURATION = option(
    "compaction.max-duration",
    duration(minimum=SECOND),
    "5 min",
    "A compaction that takes longer commits what it has.",
    SERVER,
)
COMPACTION_MAX_SLOTS = option(
    "compaction.max-slots",
    ratio(),
    "0.5",
    "The share of a pool's slots that compactions may take; one at least.",
    SERVER,
)
COMPACTION_MAX_BYTES_PER_HOUR = optional(
    "compaction.max-bytes-per-hour",
    size(minimum=1 << 20),
    "no limit",
    "Once compactions have written so much within an hour no other one begins.",
    SERVER,
)
COMPACTION_URGENT_FILES = option(
    "compaction.urgent-files",
    integer(minimum=1),
    "1000",
    "A table with more files than that per bucket is compacted as soon as a slot is free.",
    SERVER,
)
COMPACTION_QUIET_AFTER = option(
    "compaction.quiet-after",
    duration(minimum=SECOND),
    "1 h",
    "A bucket to which nothing came for so long is packed once; the server looks for such tables by its own setting.",
    JOB,
)
