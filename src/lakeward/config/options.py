# SPDX-License-Identifier: Apache-2.0
"""Every option there is, once. Keys and defaults are Fluss's where Fluss has one; `fluss=` says where ours differ.

To add one: add a constant in its section, use it through `config.get(...)`, run `make generate`. It is a table of data,
and so longer than other files.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from lakeward.config.kinds import OptionKind, boolean, choice, duration, integer, path, ratio, size, text, word_list
from lakeward.config.option import Family, Option, Scope

T = TypeVar("T")

ALL: dict[str, Option[Any]] = {}
"""Key -> option, in the order of this file."""

_SECOND, _MS = timedelta(seconds=1), timedelta(milliseconds=1)


def _add(option: Option[T]) -> Option[T]:
    assert option.key not in ALL, f"{option.key} is there twice"
    assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", option.key), (
        f"{option.key} cannot be spelled as an environment variable"
    )
    ALL[option.key] = option
    return option


def _option(
    key: str,
    kind: OptionKind[T],
    default: str,
    help: str,
    scope: Scope,
    *,
    fluss: str | None = None,
    alterable: bool = True,
    secret: bool = False,
    variable: str | None = None,
) -> Option[T]:
    value = kind.parse(default)
    return _add(
        Option(
            key=key,
            kind=kind,
            default=value,
            help=help,
            scope=scope,
            fluss=fluss,
            alterable=alterable,
            secret=secret,
            variable=variable,
        )
    )


def _optional(
    key: str,
    kind: OptionKind[T],
    unset: str,
    help: str,
    scope: Scope,
    *,
    fluss: str | None = None,
    alterable: bool = True,
    secret: bool = False,
    variable: str | None = None,
) -> Option[T | None]:
    """An option without a default; `unset` says in words what then holds."""
    option: Option[T | None] = Option(
        key=key,
        kind=kind,
        default=None,
        unset=unset,
        help=help,
        scope=scope,
        fluss=fluss,
        alterable=alterable,
        secret=secret,
        variable=variable,
    )
    return _add(option)


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


_S, _J, _T, _C = Scope.SERVER, Scope.JOB, Scope.TABLE, Scope.CLIENT

# ---- server ----------------------------------------------------------------------------------------------------------
SERVER_HOST = _option("server.host", text(), "127.0.0.1", "Address to listen on; any but loopback needs a token.", _S)
SERVER_PORT = _option("server.port", integer(minimum=0, maximum=65_535), "9050", "HTTP port; 0 takes a free one.", _S)
SERVER_FLIGHT_PORT = _option(
    "server.flight-port",
    integer(minimum=0, maximum=65_535),
    "9051",
    "Arrow Flight port; 0 takes a free one. Clients ask the server for it.",
    _S,
)
SERVER_ADVERTISED_HOST = _optional(
    "server.advertised-host",
    text(),
    "the address listened on",
    "Host name under which clients and executors reach this server.",
    _S,
)
SERVER_ALLOWED_HOSTS = _option(
    "server.allowed-hosts",
    word_list(),
    "",
    "Names, with or without a port, that calls may give in Host, and other web pages in Origin. None: without tokens "
    "this machine's own names, with tokens any Host; addresses always, pages of other servers never.",
    _S,
)
SERVER_LAKE_OPTIONS_SHOWN = _option(
    "server.lake-options.shown",
    word_list(),
    "",
    "Names of further lake settings that jobs and readers are told. Known names that hold no secret always are; user "
    "and password are taken out of URIs.",
    _S,
)
SERVER_JOBS_BOUND = _option(
    "server.jobs.bound",
    boolean(),
    "false",
    "A job may only call itself by the name of its token, or that name, a dash and more: no job takes over another's.",
    _S,
)
SERVER_QUOTA_REQUESTS = _option(
    "server.quota.requests", integer(minimum=1), "500", "HTTP calls that one token may have under way.", _S
)
SERVER_QUOTA_STREAMS = _option(
    "server.quota.streams", integer(minimum=1), "400", "Flight calls that one token may have under way.", _S
)
SERVER_QUOTA_BYTES = _option(
    "server.quota.bytes", size(minimum=1), "192 mb", "Bytes of writes and lookups that one token may have in work.", _S
)
SERVER_QUOTA_WRITERS = _option(
    "server.quota.writers",
    integer(minimum=1),
    "500000",
    "Writers that one token may begin in ten minutes; one that writes to several buckets counts for each.",
    _S,
)
SERVER_QUOTA_TABLES = _option(
    "server.quota.tables",
    integer(minimum=1),
    "10000",
    "Tables among which a token may make another, of those that it may use.",
    _S,
)
SERVER_AUDIT = _option(
    "server.audit",
    choice(Audit),
    "changes",
    "What goes to audit/audit.log in the data folder: off, calls that change something and refusals, or all calls.",
    _S,
)
SERVER_HTTP_MAX_CONNECTIONS = _option(
    "server.http.max-connections", integer(minimum=8), "1000", "HTTP connections at once.", _S
)
SERVER_HTTP_MAX_CONNECTIONS_PER_PEER = _option(
    "server.http.max-connections-per-peer",
    integer(minimum=4),
    "250",
    "HTTP connections at once from one address.",
    _S,
)
SERVER_HTTP_HEADER_TIME = _option(
    "server.http.header-time",
    duration(minimum=_SECOND),
    "20 s",
    "How long a connection may take to send a whole request header, and may be idle.",
    _S,
)
SERVER_FLIGHT_MAX_CONNECTIONS = _option(
    "server.flight.max-connections", integer(minimum=8), "1000", "Flight connections at once.", _S
)
SERVER_FLIGHT_MAX_CONNECTIONS_PER_PEER = _option(
    "server.flight.max-connections-per-peer",
    integer(minimum=4),
    "250",
    "Flight connections at once from one address.",
    _S,
)
SERVER_FLIGHT_HEADER_TIME = _option(
    "server.flight.header-time",
    duration(minimum=_SECOND),
    "20 s",
    "How long a Flight connection may take to its first call that is let in, and between two pieces of a frame.",
    _S,
)
SERVER_FLIGHT_IDLE_TIME = _option(
    "server.flight.idle-time",
    duration(minimum=_SECOND),
    "10 min",
    "How long a put stream may send nothing, and a Flight connection may be without calls. Clients open another when "
    "they have something to send.",
    _S,
)
SERVER_FLIGHT_MAX_TICKET = _option(
    "server.flight.max-ticket",
    size(minimum=1024),
    "16 mb",
    "Largest message of a Flight call that is no put, for instance the keys of a lookup.",
    _S,
)
SERVER_DATA_DIR = _option(
    "server.data-dir", path(), "lakeward-data", "Folder for logs, keys, state and the embedded catalog.", _S
)
SERVER_TOKENS = _option(
    "server.tokens",
    word_list(),
    "",
    "Tokens as name:role:secret; roles are read, write, job, admin. None: loopback only.",
    _S,
    secret=True,
)
SERVER_TOKEN_FILE = _optional(
    "server.token-file", path(), "no file", "File with one name:role:secret a line, beside server.tokens.", _S
)
SERVER_TLS_CERT = _optional("server.tls.cert", path(), "no TLS", "Certificate chain (PEM) for HTTP and Flight.", _S)
SERVER_TLS_KEY = _optional("server.tls.key", path(), "no TLS", "Private key (PEM) of server.tls.cert.", _S)
SERVER_RESTORED = _option(
    "server.restored",
    boolean(),
    "false",
    "The data folder is a restored copy: the embedded catalog is moved forward to what the warehouse holds, and "
    "tables with a lake take "
    "no writes before it has answered.",
    _S,
)
SERVER_SHUTDOWN_GRACE = _option(
    "server.shutdown.grace", duration(), "10 s", "How long calls in work may take to end after SIGTERM.", _S
)
SERVER_LOG_LEVEL = _option(
    "server.log-level", choice(LogLevel), "info", "What the server writes to standard error.", _S
)
SERVER_HTTP_MAX_BODY = _option("server.http.max-body", size(minimum=1024), "16 mb", "Largest HTTP request body.", _S)
SERVER_REQUEST_MAX_SIZE = _option(
    "server.request.max-size",
    size(minimum=1024),
    "64 mb",
    "Largest single record batch over Flight. A larger one is refused by its announced length.",
    _S,
)
SERVER_MEMORY_MAX_IN_FLIGHT = _option(
    "server.memory.max-in-flight",
    size(minimum=1 << 20),
    "256 mb",
    "Bytes of writes in work; beyond it writers wait.",
    _S,
)
SERVER_DISK_RESERVE = _option(
    "server.disk.reserve",
    size(),
    "256 mb",
    "Free space below which writes are refused, so that state and uploads go on.",
    _S,
)
SERVER_WRITER_ID_EXPIRATION_TIME = _option(
    "server.writer-id.expiration-time",
    duration(minimum=_SECOND),
    "7 d",
    "How long an idle writer's sequence is remembered. Of more than 4096 a bucket, the longest idle go after 10 min.",
    _S,
)
MAX_PARTITION_NUM = _option("max.partition.num", integer(minimum=1), "1000", "Most partitions of a table.", _S)

# ---- lake ------------------------------------------------------------------------------------------------------------
DATALAKE_ENABLED = _optional(
    "datalake.enabled",
    boolean(),
    "true when datalake.format is set",
    "Whether this server tiers tables to a lake at all.",
    _S,
)
DATALAKE_FORMAT = _optional(
    "datalake.format", text(), "no lake", "The lake plugin that tables go to: iceberg, or one that is installed.", _S
)

TABLE_DATALAKE_ENABLED = _optional(
    "table.datalake.enabled",
    boolean(),
    "true when the server has a datalake.format",
    "Whether this table is tiered to the lake.",
    _T,
    fluss="false",
)
TABLE_DATALAKE_FORMAT = _optional(
    "table.datalake.format",
    text(),
    "the server's datalake.format",
    "The table's lake format, fixed when it is created.",
    _T,
    alterable=False,
)
TABLE_DATALAKE_FRESHNESS = _option(
    "table.datalake.freshness",
    duration(minimum=_MS),
    "3 min",
    "The longest a row may wait before the lake shows it.",
    _T,
    fluss="the same key is the pause between two rounds there; peak lag is longer",
)
TABLE_DATALAKE_MAX_ROUND_DURATION = _optional(
    "table.datalake.max-round-duration",
    duration(minimum=_MS),
    "half the freshness",
    "A round that takes longer commits what it has and is queued again.",
    _T,
    fluss="not there: the freshness itself is the limit",
)
TABLE_DATALAKE_AUTO_MAINTENANCE = _option(
    "table.datalake.auto-maintenance",
    boolean(),
    "true",
    "Upkeep of the lake table: compaction and snapshot expiry, where the two options below do not say otherwise.",
    _T,
    fluss="not there: the two below stand alone, both false",
)
TABLE_DATALAKE_AUTO_COMPACTION = _option(
    "table.datalake.auto-compaction",
    boolean(),
    "true",
    "Whether data files of the lake table are compacted.",
    _T,
    fluss="false",
)
TABLE_DATALAKE_AUTO_EXPIRE_SNAPSHOT = _option(
    "table.datalake.auto-expire-snapshot",
    boolean(),
    "true",
    "Whether snapshots of the lake table expire by its history.expire.* properties.",
    _T,
    fluss="false",
)
TABLE_DATALAKE_FOREIGN_ROWS = _option(
    "table.datalake.foreign-rows",
    choice(ForeignRows),
    "stop",
    "What a round does when another engine inserted rows into the lake table of a primary-key table, where a key would "
    "be there twice: stop with an error, or remove them. Rewrites and deletes by others are no inserts.",
    _T,
    fluss="not there",
)
TABLE_DATALAKE_POOL = _option(
    "table.datalake.pool", text(), "default", "The pool of jobs that may tier this table.", _T
)
TABLE_DATALAKE_PRIORITY = _option(
    "table.datalake.priority",
    integer(minimum=-100, maximum=100),
    "0",
    "Under overload tables with a higher number go first.",
    _T,
)

COMPACTION_FAN_IN = _option(
    "compaction.fan-in",
    integer(minimum=2, maximum=1_000),
    "8",
    "How many files of one size become one: more means fewer rewrites and more files.",
    _J,
)
COMPACTION_TARGET_SIZE = _option(
    "compaction.target-size", size(minimum=1 << 20), "128 mb", "The size that data files are merged up to.", _J
)
COMPACTION_MAX_DELETED = _option(
    "compaction.max-deleted",
    ratio(),
    "0.2",
    "A file is rewritten when more than this share of its rows is deleted.",
    _J,
)
COMPACTION_MAX_BYTES = _option(
    "compaction.max-bytes", size(minimum=1 << 20), "1 gb", "Most bytes that one compaction rewrites.", _J
)
COMPACTION_MAX_DURATION = _option(
    "compaction.max-duration",
    duration(minimum=_SECOND),
    "5 min",
    "A compaction that takes longer commits what it has.",
    _S,
)
COMPACTION_MAX_SLOTS = _option(
    "compaction.max-slots", ratio(), "0.5", "The share of a pool's slots that compactions may take; one at least.", _S
)
COMPACTION_MAX_BYTES_PER_HOUR = _optional(
    "compaction.max-bytes-per-hour",
    size(minimum=1 << 20),
    "no limit",
    "Once compactions have written so much within an hour no other one begins.",
    _S,
)
COMPACTION_URGENT_FILES = _option(
    "compaction.urgent-files",
    integer(minimum=1),
    "1000",
    "A table with more files than that per bucket is compacted as soon as a slot is free.",
    _S,
)
COMPACTION_QUIET_AFTER = _option(
    "compaction.quiet-after",
    duration(minimum=_SECOND),
    "1 h",
    "A bucket to which nothing came for so long is packed once.",
    _J,
)

# ---- logs ------------------------------------------------------------------------------------------------------------
LOG_SEGMENT_FILE_SIZE = _option(
    "log.segment.file-size",
    size(minimum=1024, maximum=2 << 30),
    "64 mb",
    "A log segment is closed at this size.",
    _S,
    fluss="1 gb; smaller here so that one machine's disk is freed sooner",
)
LOG_INDEX_INTERVAL_SIZE = _option(
    "log.index.interval-size", size(minimum=1), "4 kb", "Log bytes between two index entries.", _S
)
LOG_FSYNC_INTERVAL = _option(
    "log.fsync.interval",
    duration(minimum=_MS),
    "100 ms",
    "How often tables with table.log.fsync = interval are forced to disk.",
    _S,
)
LOG_RETENTION_CHECK_INTERVAL = _option(
    "log.retention.check-interval",
    duration(minimum=_MS),
    "5 min",
    "How often segments past their time are looked for.",
    _S,
)
TABLE_LOG_FORMAT = _option(
    "table.log.format", choice(LogFormat), "arrow", "How log batches are stored.", _T, alterable=False
)
TABLE_LOG_FSYNC = _option(
    "table.log.fsync",
    choice(Fsync),
    "always",
    "When a write is forced to disk: before it is acknowledged, on log.fsync.interval, or when the system likes.",
    _T,
    fluss="not there: durability comes from replicas",
)
TABLE_LOG_TTL = _option(
    "table.log.ttl",
    duration(),
    "7 d",
    "Log records older than this may go, once the lake has them. 0 keeps them for ever.",
    _T,
)
TABLE_LOG_LOCAL_TTL = _optional(
    "table.log.local-ttl",
    duration(minimum=_MS),
    "table.log.ttl",
    "The same for local copies of segments that are in the remote log.",
    _T,
)
TABLE_LOG_TIERED_LOCAL_SEGMENTS = _option(
    "table.log.tiered.local-segments",
    integer(minimum=1),
    "2",
    "How many of the newest segments stay local once they are in the remote log.",
    _T,
)
TABLE_LOG_ARROW_COMPRESSION_TYPE = _option(
    "table.log.arrow.compression.type",
    choice(Compression),
    "none",
    "Compression of log batches.",
    _T,
    alterable=False,
    fluss="zstd; here the log is local and short-lived, and compressing costs more than writing",
)
TABLE_LOG_ARROW_COMPRESSION_ZSTD_LEVEL = _option(
    "table.log.arrow.compression.zstd.level", integer(minimum=1, maximum=22), "3", "Level of zstd.", _T, alterable=False
)
REMOTE_DATA_DIR = _optional(
    "remote.data.dir",
    text(),
    "the folder remote in server.data-dir",
    "Folder or URI that closed log segments are copied to.",
    _S,
)
REMOTE_LOG_TASK_INTERVAL_DURATION = _option(
    "remote.log.task-interval-duration",
    duration(),
    "1 min",
    "How often closed segments are copied; 0 switches the remote log off.",
    _S,
)
REMOTE_LOG_TASK_MAX_UPLOAD_SEGMENTS = _option(
    "remote.log.task-max-upload-segments", integer(minimum=1), "5", "Most segments of a bucket copied in one go.", _S
)

# ---- keys and partitions ---------------------------------------------------------------------------------------------
KV_SNAPSHOT_INTERVAL = _option(
    "kv.snapshot.interval", duration(minimum=_MS), "10 min", "How often a bucket's keys are checkpointed.", _S
)
KV_SNAPSHOT_NUM_RETAINED = _option(
    "kv.snapshot.num-retained", integer(minimum=1), "2", "How many checkpoints of a bucket are kept.", _S
)
KV_BLOCK_CACHE_SIZE = _option(
    "kv.block-cache.size", size(minimum=1 << 20), "64 mb", "RocksDB block cache, shared by all buckets.", _S
)
TABLE_CHANGELOG_IMAGE = _option(
    "table.changelog.image",
    choice(ChangelogImage),
    "full",
    "full writes -U and +U for an update, wal only +U. Both carry __prev_offset here.",
    _T,
    alterable=False,
)
TABLE_AUTO_PARTITION_ENABLED = _option(
    "table.auto-partition.enabled", boolean(), "false", "Make and expire partitions by time.", _T
)
TABLE_AUTO_PARTITION_KEY = _optional(
    "table.auto-partition.key",
    text(),
    "the only partition key",
    "Which partition key holds the time.",
    _T,
    alterable=False,
)
TABLE_AUTO_PARTITION_TIME_UNIT = _option(
    "table.auto-partition.time-unit",
    choice(TimeUnit),
    "day",
    "The time that one partition covers.",
    _T,
    alterable=False,
)
TABLE_AUTO_PARTITION_TIME_ZONE = _option(
    "table.auto-partition.time-zone",
    text(),
    "UTC",
    "Zone in which a partition's time begins.",
    _T,
    alterable=False,
    fluss="the server's zone",
)
TABLE_AUTO_PARTITION_NUM_PRECREATE = _option(
    "table.auto-partition.num-precreate", integer(minimum=0), "2", "How many partitions are made ahead of time.", _T
)
TABLE_AUTO_PARTITION_NUM_RETENTION = _option(
    "table.auto-partition.num-retention",
    integer(),
    "7",
    "How many past partitions the hot store keeps; 0 or less keeps all. They stay in the lake.",
    _T,
    fluss="goes on time alone; here a partition also waits until the lake has all of it",
)
AUTO_PARTITION_CHECK_INTERVAL = _option(
    "auto-partition.check.interval", duration(minimum=_MS), "10 min", "How often partitions are made and expired.", _S
)

# ---- coordinator -----------------------------------------------------------------------------------------------------
COORDINATOR_LEASE_DURATION = _option(
    "coordinator.lease.duration",
    duration(minimum=_MS),
    "2 min",
    "A job silent for this long loses its rounds.",
    _S,
    fluss="2 min, fixed",
)
COORDINATOR_SWEEP_INTERVAL = _option(
    "coordinator.sweep.interval",
    duration(minimum=_MS),
    "15 s",
    "How often leases that ended are looked for.",
    _S,
    fluss="15 s, fixed",
)
COORDINATOR_HEARTBEAT_INTERVAL = _option(
    "coordinator.heartbeat.interval",
    duration(minimum=_MS),
    "5 s",
    "How often jobs are told to beat.",
    _S,
    fluss="the job's 30 s poll",
)
COORDINATOR_TICK = _option(
    "coordinator.tick", duration(minimum=_MS), "200 ms", "How often deadlines are looked at.", _S
)
COORDINATOR_SCHEDULE_MARGIN = _option(
    "coordinator.schedule.margin",
    duration(),
    "500 ms",
    "How much sooner than needed a round starts, beside its expected duration.",
    _S,
)
COORDINATOR_BACKOFF_INITIAL = _option(
    "coordinator.backoff.initial",
    duration(minimum=_MS),
    "1 s",
    "Wait after a first failure; doubles each time.",
    _S,
    fluss="none",
)
COORDINATOR_BACKOFF_MAX = _option(
    "coordinator.backoff.max", duration(minimum=_MS), "5 min", "Longest wait after a failure.", _S
)
COORDINATOR_BACKOFF_JITTER = _option(
    "coordinator.backoff.jitter", ratio(), "0.2", "Random share added to or taken from a wait.", _S
)
COORDINATOR_QUARANTINE_FAILURES = _option(
    "coordinator.quarantine.failures",
    integer(minimum=1),
    "10",
    "Failures in a row after which a table waits for a person.",
    _S,
    fluss="never",
)
COORDINATOR_ORPHAN_GRACE = _option(
    "coordinator.orphan.grace",
    duration(),
    "10 min",
    "How long after a lost lease files of a round are left alone; a cancelled task may still write.",
    _S,
)
COORDINATOR_ORPHAN_INTERVAL = _option(
    "coordinator.orphan.interval", duration(minimum=_MS), "10 min", "How often orphan files are looked for.", _S
)
COORDINATOR_MAINTENANCE_INTERVAL = _option(
    "coordinator.maintenance.interval",
    duration(minimum=_MS),
    "1 min",
    "How often lake snapshots that may go are looked for.",
    _S,
)
COORDINATOR_READ_LEASE_MAX = _option(
    "coordinator.read-lease.max",
    duration(minimum=_MS),
    "1 h",
    "Longest lease a reader gets at a time; it may renew.",
    _S,
)
COORDINATOR_TIER_NOW_LIMIT = _option(
    "coordinator.tier-now.limit", duration(minimum=_MS), "5 min", "Longest that a tier-now call waits for the lake.", _S
)
COORDINATOR_ROUNDS_KEPT = _option(
    "coordinator.rounds.kept", integer(minimum=1), "10000", "Finished rounds remembered in all.", _S
)
JOBS_EXPECTED = _option(
    "jobs.expected",
    word_list(),
    "",
    "Names of jobs that should be alive; a missing one is shown red.",
    _S,
    fluss="not there",
)

# ---- tiering job -----------------------------------------------------------------------------------------------------
TIERING_NAME = _optional("tiering.name", text(), "host name and a random part, kept in a file", "The job's name.", _J)
TIERING_POOL = _option("tiering.pool", text(), "default", "The pool this job serves.", _J)
TIERING_SLOTS = _option(
    "tiering.slots", integer(minimum=1, maximum=1_000), "4", "Rounds that this job runs at the same time.", _J
)
TIERING_MASTER = _option(
    "tiering.master", text(), "local[*,4]", "Spark master; the 4 lets tasks be retried on one machine too.", _J
)
TIERING_HEARTBEAT_INTERVAL = _option(
    "tiering.heartbeat.interval",
    duration(minimum=_MS),
    "1 s",
    "How often the job beats and asks for tables; sooner if the coordinator says so.",
    _J,
    fluss="tiering.poll.table.interval, 30 s",
)
TIERING_SPLIT_TARGET_BYTES = _option(
    "tiering.split.target-bytes",
    size(minimum=1024),
    "128 mb",
    "A bigger range of a bucket is cut into sub-splits of about this size.",
    _J,
)
TIERING_SPLIT_MAX_ATTEMPTS = _option(
    "tiering.split.max-attempts", integer(minimum=1), "3", "How often a split whose failure may heal is sent again.", _J
)
TIERING_SMALL_ROUND_BYTES = _option(
    "tiering.small-round.bytes", size(), "16 mb", "Rounds smaller than this share a Spark job with others.", _J
)
TIERING_ROUND_MAX_AGE = _option(
    "tiering.round.max-age",
    duration(minimum=_SECOND, maximum=timedelta(hours=71)),
    "2 d",
    "An older round never commits. Below the 3 days after which other engines' orphan removal may delete its files.",
    _J,
)
TIERING_ROUND_MIN_WORK = _option(
    "tiering.round.min-work",
    duration(),
    "1 s",
    "A round whose limit passed before it could write works for so long all the same, so that a late table catches up.",
    _J,
)
TIERING_COMMIT_MAX_ATTEMPTS = _option(
    "tiering.commit.max-attempts", integer(minimum=1), "10", "Tries when foreign commits come between.", _J
)
TIERING_SHUTDOWN_GRACE = _option(
    "tiering.shutdown.grace", duration(), "30 s", "How long running rounds may take to end after SIGTERM.", _J
)
TIERING_METRICS_PORT = _optional(
    "tiering.metrics-port",
    integer(minimum=0, maximum=65_535),
    "no metrics of its own",
    "Port for the job's own /metrics; 0 takes a free one.",
    _J,
)
TIERING_CACHE_DIR = _optional(
    "tiering.cache-dir",
    path(),
    "lakeward in the user's cache folder",
    "Where the job keeps Java's class archive and its name.",
    _J,
)

# ---- client ----------------------------------------------------------------------------------------------------------
CLIENT_SERVER = _option(
    "client.server", text(), "http://127.0.0.1:9050", "The server's HTTP address.", _C, variable="LAKEWARD_SERVER"
)
CLIENT_TOKEN = _optional(
    "client.token", text(), "no token", "The secret part of a token.", _C, secret=True, variable="LAKEWARD_TOKEN"
)
CLIENT_TOKEN_FILE = _optional(
    "client.token-file", path(), "no file", "File that holds the token's secret part; read again when it changes.", _C
)
CLIENT_TLS_CA = _optional(
    "client.tls.ca",
    path(),
    "the system's",
    "Certificates (PEM) that a server's TLS is checked against.",
    _C,
    variable="LAKEWARD_TLS_CA",
)
CLIENT_TIMEOUT = _option(
    "client.timeout", duration(minimum=_MS), "30 s", "Longest that a call waits for its answer.", _C
)
CLIENT_WRITER_BATCH_SIZE = _option(
    "client.writer.batch-size", size(minimum=1), "2 mb", "Rows are sent when this many bytes are together.", _C
)
CLIENT_WRITER_BATCH_ROWS = _option(
    "client.writer.batch-rows", integer(minimum=1), "10000", "Or this many rows.", _C, fluss="not there"
)
CLIENT_WRITER_BATCH_TIMEOUT = _option("client.writer.batch-timeout", duration(), "100 ms", "Or after this long.", _C)
CLIENT_WRITER_RETRY_TIMEOUT = _option(
    "client.writer.retry-timeout",
    duration(),
    "2 min",
    "How long a batch is sent again, under the same sequence, before the call fails.",
    _C,
)
CLIENT_READ_LEASE = _option(
    "client.read.lease", duration(minimum=_SECOND), "60 s", "Lease of a union read; renewed while it runs.", _C
)

FAMILIES: tuple[Family, ...] = (
    Family(
        prefix="datalake.<format>.", help="Settings of that lake plugin, handed to it without the prefix.", scope=_S
    ),
    Family(
        prefix="spark.",
        help="Handed to Spark as they are. Keys with capitals cannot be environment variables.",
        scope=_J,
    ),
)
