# SPDX-License-Identifier: Apache-2.0
"""Options of clients: readers, writers, the command line."""

from __future__ import annotations

from lakeward.config.kinds import duration, integer, path, size, text
from lakeward.config.options.declare import CLIENT, MS, SECOND, option, optional

CLIENT_SERVER = option(
    "client.server", text(), "http://127.0.0.1:9050", "The server's HTTP address.", CLIENT, variable="LAKEWARD_SERVER"
)
CLIENT_TOKEN = optional(
    "client.token", text(), "no token", "The secret part of a token.", CLIENT, secret=True, variable="LAKEWARD_TOKEN"
)
CLIENT_TOKEN_FILE = optional(
    "client.token-file",
    path(),
    "no file",
    "File that holds the token's secret part; read again when it changes.",
    CLIENT,
)
CLIENT_OAUTH2_URL = optional(
    "client.oauth2.url",
    text(),
    "no login",
    "Token endpoint of an issuer: the token is fetched there and renewed.",
    CLIENT,
)
CLIENT_OAUTH2_ID = optional("client.oauth2.id", text(), "none", "Client id for client.oauth2.url.", CLIENT)
CLIENT_OAUTH2_SECRET_FILE = optional(
    "client.oauth2.secret-file", path(), "no file", "File that holds the client secret for client.oauth2.url.", CLIENT
)
CLIENT_OAUTH2_SCOPE = optional("client.oauth2.scope", text(), "none", "Scope to ask client.oauth2.url for.", CLIENT)
CLIENT_OAUTH2_AUDIENCE = optional(
    "client.oauth2.audience",
    text(),
    "none",
    "Audience to ask client.oauth2.url for, where the issuer wants it.",
    CLIENT,
)
CLIENT_TLS_CA = optional(
    "client.tls.ca",
    path(),
    "the system's",
    "Certificates (PEM) that a server's TLS is checked against.",
    CLIENT,
    variable="LAKEWARD_TLS_CA",
)
CLIENT_TIMEOUT = option(
    "client.timeout", duration(minimum=MS), "30 s", "Longest that a call waits for its answer.", CLIENT
)
CLIENT_WRITER_BATCH_SIZE = option(
    "client.writer.batch-size", size(minimum=1), "2 mb", "Rows are sent when this many bytes are together.", CLIENT
)
CLIENT_WRITER_BATCH_ROWS = option(
    "client.writer.batch-rows", integer(minimum=1), "10000", "Or this many rows.", CLIENT, fluss="not there"
)
CLIENT_WRITER_BATCH_TIMEOUT = option("client.writer.batch-timeout", duration(), "100 ms", "Or after this long.", CLIENT)
CLIENT_WRITER_RETRY_TIMEOUT = option(
    "client.writer.retry-timeout",
    duration(),
    "2 min",
    "How long a batch is sent again, under the same sequence, before the call fails.",
    CLIENT,
)
CLIENT_READ_LEASE = option(
    "client.read.lease", duration(minimum=SECOND), "60 s", "Lease of a union read; renewed while it runs.", CLIENT
)
