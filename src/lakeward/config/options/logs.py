# SPDX-License-Identifier: Apache-2.0
"""Options of logs, local and remote."""

from __future__ import annotations

from lakeward.config.kinds import choice, duration, integer, size, text
from lakeward.config.options.choices import Compression, Fsync, LogFormat
from lakeward.config.options.declare import MS, SERVER, TABLE, option, optional

LOG_SEGMENT_FILE_SIZE = option(
    "log.segment.file-size",
    size(minimum=1024, maximum=2 << 30),
    "64 mb",
    "A log segment is closed at this size.",
    SERVER,
    fluss="1 gb; smaller here so that one machine's disk is freed sooner",
)
LOG_INDEX_INTERVAL_SIZE = option(
    "log.index.interval-size", size(minimum=1), "4 kb", "Log bytes between two index entries.", SERVER
)
LOG_FSYNC_INTERVAL = option(
    "log.fsync.interval",
    duration(minimum=MS),
    "100 ms",
    "How often tables with table.log.fsync = interval are forced to disk.",
    SERVER,
)
LOG_RETENTION_CHECK_INTERVAL = option(
    "log.retention.check-interval",
    duration(minimum=MS),
    "5 min",
    "How often segments past their time are looked for.",
    SERVER,
)
TABLE_LOG_FORMAT = option(
    "table.log.format", choice(LogFormat), "arrow", "How log batches are stored.", TABLE, alterable=False
)
TABLE_LOG_FSYNC = option(
    "table.log.fsync",
    choice(Fsync),
    "always",
    "When a write is forced to disk: before it is acknowledged, on log.fsync.interval, or when the system likes.",
    TABLE,
    fluss="not there: durability comes from replicas",
)
TABLE_LOG_TTL = option(
    "table.log.ttl",
    duration(),
    "7 d",
    "Log records older than this may go, once the lake has them. 0 keeps them for ever.",
    TABLE,
)
TABLE_LOG_LOCAL_TTL = optional(
    "table.log.local-ttl",
    duration(minimum=MS),
    "table.log.ttl",
    "The same for local copies of segments that are in the remote log.",
    TABLE,
)
TABLE_LOG_TIERED_LOCAL_SEGMENTS = option(
    "table.log.tiered.local-segments",
    integer(minimum=1),
    "2",
    "How many of the newest segments stay local once they are in the remote log.",
    TABLE,
)
TABLE_LOG_ARROW_COMPRESSION_TYPE = option(
    "table.log.arrow.compression.type",
    choice(Compression),
    "none",
    "Compression of log batches.",
    TABLE,
    alterable=False,
    fluss="zstd; here the log is local and short-lived, and compressing costs more than writing",
)
TABLE_LOG_ARROW_COMPRESSION_ZSTD_LEVEL = option(
    "table.log.arrow.compression.zstd.level",
    integer(minimum=1, maximum=22),
    "3",
    "Level of zstd.",
    TABLE,
    alterable=False,
)
REMOTE_DATA_DIR = optional(
    "remote.data.dir",
    text(),
    "the folder remote in server.data-dir",
    "Folder or URI that closed log segments are copied to.",
    SERVER,
)
REMOTE_LOG_TASK_INTERVAL_DURATION = option(
    "remote.log.task-interval-duration",
    duration(),
    "1 min",
    "How often closed segments are copied; 0 switches the remote log off.",
    SERVER,
)
REMOTE_LOG_TASK_MAX_UPLOAD_SEGMENTS = option(
    "remote.log.task-max-upload-segments",
    integer(minimum=1),
    "5",
    "Most segments of a bucket copied in one go.",
    SERVER,
)
