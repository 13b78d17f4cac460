# SPDX-License-Identifier: Apache-2.0
"""Options of the server: addresses, ports, quotas, logins."""

from __future__ import annotations

from lakeward.config.kinds import boolean, choice, duration, integer, path, size, text, word_list
from lakeward.config.options.choices import Audit, LogLevel
from lakeward.config.options.declare import SECOND, SERVER, option, optional

SERVER_HOST = option(
    "server.host", text(), "127.0.0.1", "Address to listen on; any but loopback needs a token.", SERVER
)
SERVER_PORT = option(
    "server.port", integer(minimum=0, maximum=65_535), "9050", "HTTP port; 0 takes a free one.", SERVER
)
SERVER_FLIGHT_PORT = option(
    "server.flight-port",
    integer(minimum=0, maximum=65_535),
    "9051",
    "Arrow Flight port; 0 takes a free one. Clients ask the server for it.",
    SERVER,
)
SERVER_ADVERTISED_HOST = optional(
    "server.advertised-host",
    text(),
    "the address listened on",
    "Host name under which clients and executors reach this server.",
    SERVER,
)
SERVER_ALLOWED_HOSTS = option(
    "server.allowed-hosts",
    word_list(),
    "",
    "Names, with or without a port, that calls may give in Host, and other web pages in Origin. None: without tokens "
    "this machine's own names, with tokens any Host; addresses always, pages of other servers never.",
    SERVER,
)
SERVER_LAKE_OPTIONS_SHOWN = option(
    "server.lake-options.shown",
    word_list(),
    "",
    "Names of further lake settings that jobs and readers are told. Known names that hold no secret always are; user "
    "and password are taken out of URIs.",
    SERVER,
)
SERVER_JOBS_BOUND = option(
    "server.jobs.bound",
    boolean(),
    "false",
    "A job may only call itself by the name of its token, or that name, a dash and more: no job takes over another's.",
    SERVER,
)
SERVER_QUOTA_REQUESTS = option(
    "server.quota.requests", integer(minimum=1), "500", "HTTP calls that one token may have under way.", SERVER
)
SERVER_QUOTA_STREAMS = option(
    "server.quota.streams", integer(minimum=1), "400", "Flight calls that one token may have under way.", SERVER
)
SERVER_QUOTA_BYTES = option(
    "server.quota.bytes",
    size(minimum=1),
    "192 mb",
    "Bytes of writes and lookups that one token may have in work.",
    SERVER,
)
SERVER_QUOTA_WRITERS = option(
    "server.quota.writers",
    integer(minimum=1),
    "500000",
    "Writers that one token may begin in ten minutes; one that writes to several buckets counts for each.",
    SERVER,
)
SERVER_QUOTA_READS = option(
    "server.quota.reads", integer(minimum=1), "1000", "Union reads that one token may have under way.", SERVER
)
SERVER_QUOTA_TABLES = option(
    "server.quota.tables",
    integer(minimum=1),
    "10000",
    "Tables among which a token may make another, of those that it may use.",
    SERVER,
)
SERVER_QUOTA_DEFINITIONS = option(
    "server.quota.definitions",
    size(minimum=1),
    "64 mb",
    "Bytes, as JSON, of the tables that a token may use with all their schemas; above it none is made or gets columns.",
    SERVER,
)
SERVER_OTLP_ENDPOINT = optional(
    "server.otlp-endpoint",
    text(),
    "no export",
    "Address of an OpenTelemetry collector (OTLP over HTTP) that gets the figures of /metrics every ten seconds.",
    SERVER,
)
SERVER_AUDIT = option(
    "server.audit",
    choice(Audit),
    "changes",
    "What goes to audit/audit.log in the data folder: off, calls that change something and refusals, or all calls.",
    SERVER,
)
SERVER_HTTP_MAX_CONNECTIONS = option(
    "server.http.max-connections", integer(minimum=8), "1000", "HTTP connections at once.", SERVER
)
SERVER_HTTP_MAX_CONNECTIONS_PER_PEER = option(
    "server.http.max-connections-per-peer",
    integer(minimum=4),
    "250",
    "HTTP connections at once from one address.",
    SERVER,
)
SERVER_HTTP_HEADER_TIME = option(
    "server.http.header-time",
    duration(minimum=SECOND),
    "20 s",
    "How long a connection may take to send a whole request header, and may be idle.",
    SERVER,
)
SERVER_FLIGHT_MAX_CONNECTIONS = option(
    "server.flight.max-connections", integer(minimum=8), "1000", "Flight connections at once.", SERVER
)
SERVER_FLIGHT_MAX_CONNECTIONS_PER_PEER = option(
    "server.flight.max-connections-per-peer",
    integer(minimum=4),
    "250",
    "Has no effect since 0.2.0: a proxy or firewall in front limits connections from one address (docs/security.md).",
    SERVER,
)
SERVER_FLIGHT_MAX_CALLS = option(
    "server.flight.max-calls",
    integer(minimum=8),
    "1000",
    "Flight calls under way of all tokens; each takes a thread.",
    SERVER,
)
SERVER_FLIGHT_HEADER_TIME = option(
    "server.flight.header-time",
    duration(minimum=SECOND),
    "20 s",
    "How long a Flight connection may take to its greeting, and a call to its first whole message.",
    SERVER,
)
SERVER_FLIGHT_IDLE_TIME = option(
    "server.flight.idle-time",
    duration(minimum=SECOND),
    "10 min",
    "How long a put stream may take to its next whole message, and a reader to take a message of its answer. Clients "
    "open another stream when they have something to send, and read on where they were.",
    SERVER,
)
SERVER_FLIGHT_MAX_TICKET = option(
    "server.flight.max-ticket",
    size(minimum=1024),
    "16 mb",
    "Largest message of a Flight call that is no put, for instance the keys of a lookup.",
    SERVER,
)
SERVER_DATA_DIR = option(
    "server.data-dir", path(), "lakeward-data", "Folder for logs, keys, state and the embedded catalog.", SERVER
)
SERVER_TOKENS = option(
    "server.tokens",
    word_list(),
    "",
    "Tokens as name:role:secret; roles are read, write, job, admin. None: loopback only.",
    SERVER,
    secret=True,
)
SERVER_TOKEN_FILE = optional(
    "server.token-file", path(), "no file", "File with one name:role:secret a line, beside server.tokens.", SERVER
)
SERVER_OIDC_ISSUER = optional(
    "server.oidc.issuer",
    text(),
    "no logins by JWT",
    "Address of an OpenID Connect issuer whose tokens are accepted beside server.tokens (docs/login.md).",
    SERVER,
)
SERVER_OIDC_AUDIENCE = optional(
    "server.oidc.audience", text(), "no token", "What a token's claim aud must be or contain.", SERVER
)
SERVER_OIDC_RULES = option(
    "server.oidc.rules",
    word_list(),
    "",
    "Rights by claims, as claim=value:role or claim=value:role:shop.*+crm.orders; the first that matches counts.",
    SERVER,
)
SERVER_OIDC_NAME_CLAIM = option(
    "server.oidc.name-claim", text(), "sub", "Claim that names the caller in quotas, logs and job names.", SERVER
)
SERVER_OIDC_SKEW = option(
    "server.oidc.skew",
    duration(maximum=300 * SECOND),
    "30 s",
    "By how much the clocks of issuer and server may differ.",
    SERVER,
)
SERVER_OIDC_KEYS_REFRESH = option(
    "server.oidc.keys-refresh",
    duration(minimum=SECOND),
    "5 min",
    "How often the issuer's keys are loaded; a token that names an unknown key has them loaded at once.",
    SERVER,
)
SERVER_TLS_CERT = optional("server.tls.cert", path(), "no TLS", "Certificate chain (PEM) for HTTP and Flight.", SERVER)
SERVER_TLS_KEY = optional("server.tls.key", path(), "no TLS", "Private key (PEM) of server.tls.cert.", SERVER)
SERVER_RESTORED = option(
    "server.restored",
    boolean(),
    "false",
    "The data folder is a restored copy: the embedded catalog is moved forward to what the warehouse holds, and "
    "tables with a lake take "
    "no writes before it has answered.",
    SERVER,
)
SERVER_SHUTDOWN_GRACE = option(
    "server.shutdown.grace", duration(), "10 s", "How long calls in work may take to end after SIGTERM.", SERVER
)
SERVER_LOG_LEVEL = option(
    "server.log-level", choice(LogLevel), "info", "What the server writes to standard error.", SERVER
)
SERVER_HTTP_MAX_BODY = option("server.http.max-body", size(minimum=1024), "16 mb", "Largest HTTP request body.", SERVER)
SERVER_REQUEST_MAX_SIZE = option(
    "server.request.max-size",
    size(minimum=1024),
    "64 mb",
    "Largest single record batch over Flight. A larger one is refused by its announced length.",
    SERVER,
)
SERVER_MEMORY_MAX_IN_FLIGHT = option(
    "server.memory.max-in-flight",
    size(minimum=1 << 20),
    "256 mb",
    "Bytes of writes in work; beyond it writers wait. Answers to readers have as much of their own.",
    SERVER,
)
SERVER_DISK_RESERVE = option(
    "server.disk.reserve",
    size(),
    "256 mb",
    "Free space below which writes are refused, so that state and uploads go on.",
    SERVER,
)
SERVER_WRITER_ID_EXPIRATION_TIME = option(
    "server.writer-id.expiration-time",
    duration(minimum=SECOND),
    "7 d",
    "How long an idle writer's sequence is remembered. Of more than 4096 a bucket, the longest idle go after 10 min.",
    SERVER,
)
MAX_PARTITION_NUM = option("max.partition.num", integer(minimum=1), "1000", "Most partitions of a table.", SERVER)

LIVE_HOLD = option(
    "live.hold",
    duration(),
    "1 s",
    "Loads from warehouse `live` within this time of each other show all tables at one moment; 0 s: each its own.",
    SERVER,
)
LIVE_KEEP = option(
    "live.keep",
    duration(minimum=SECOND),
    "30 min",
    "How long files of a live snapshot stay readable after the last answer that named them.",
    SERVER,
)
LIVE_MAX_TAIL_ROWS = option(
    "live.max-tail-rows",
    integer(minimum=1),
    "5000000",
    "A table whose tail has more rows is shown as of an earlier moment, and a round is asked for.",
    SERVER,
)
LIVE_MAX_TAIL_BYTES = option(
    "live.max-tail-bytes", size(minimum=1), "2 gb", "The same for the tail's bytes in the log.", SERVER
)
LIVE_QUOTA_BYTES = option(
    "live.quota-bytes",
    size(minimum=1_000_000),
    "8 gb",
    "The part of `live.max-bytes` that loads of one token may fill, on a server or console with tokens.",
    SERVER,
)
LIVE_MAX_BYTES = option(
    "live.max-bytes",
    size(minimum=1_000_000),
    "16 gb",
    "Most bytes of tail files that loads from `live` may leave in the lakes, 64 kB of metadata for each new answer "
    "included; beyond it a table whose rows moved is refused until older files go.",
    SERVER,
)
