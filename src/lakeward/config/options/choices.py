# SPDX-License-Identifier: Apache-2.0
"""Words among which an option lets choose."""

from __future__ import annotations

from enum import StrEnum


class Fsync(StrEnum):
    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class ChangelogImage(StrEnum):
    FULL = "full"
    WAL = "wal"


class Compression(StrEnum):
    NONE = "none"
    LZ4_FRAME = "lz4_frame"
    ZSTD = "zstd"


class TimeUnit(StrEnum):
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


class LogFormat(StrEnum):
    ARROW = "arrow"


class Audit(StrEnum):
    OFF = "off"
    CHANGES = "changes"
    ALL = "all"


class ForeignRows(StrEnum):
    STOP = "stop"
    REMOVE = "remove"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class SchemaContract(StrEnum):
    STRICT = "strict"
    EVOLVE = "evolve"
    QUARANTINE = "quarantine"
