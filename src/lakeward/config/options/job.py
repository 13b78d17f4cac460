# SPDX-License-Identifier: Apache-2.0
"""Options of tiering jobs."""

from __future__ import annotations

from datetime import timedelta

from lakeward.config.kinds import duration, integer, path, size, text
from lakeward.config.options.declare import JOB, MS, SECOND, option, optional

TIERING_NAME = optional("tiering.name", text(), "host name and a random part, kept in a file", "The job's name.", JOB)
TIERING_POOL = option("tiering.pool", text(), "default", "The pool this job serves.", JOB)
TIERING_SLOTS = option(
    "tiering.slots", integer(minimum=1, maximum=1_000), "4", "Rounds that this job runs at the same time.", JOB
)
TIERING_MASTER = option(
    "tiering.master", text(), "local[*,4]", "Spark master; the 4 lets tasks be retried on one machine too.", JOB
)
TIERING_HEARTBEAT_INTERVAL = option(
    "tiering.heartbeat.interval",
    duration(minimum=MS),
    "1 s",
    "How often the job beats and asks for tables; sooner if the coordinator says so.",
    JOB,
    fluss="tiering.poll.table.interval, 30 s",
)
TIERING_SPLIT_TARGET_BYTES = option(
    "tiering.split.target-bytes",
    size(minimum=1024),
    "128 mb",
    "A bigger range of a bucket is cut into sub-splits of about this size.",
    JOB,
)
TIERING_SPLIT_MAX_ATTEMPTS = option(
    "tiering.split.max-attempts",
    integer(minimum=1),
    "3",
    "How often a split whose failure may heal is sent again.",
    JOB,
)
TIERING_SMALL_ROUND_BYTES = option(
    "tiering.small-round.bytes", size(), "16 mb", "Rounds smaller than this share a Spark job with others.", JOB
)
TIERING_ROUND_MAX_AGE = option(
    "tiering.round.max-age",
    duration(minimum=SECOND, maximum=timedelta(hours=71)),
    "2 d",
    "An older round never commits. Below the 3 days after which other engines' orphan removal may delete its files.",
    JOB,
)
TIERING_ROUND_MIN_WORK = option(
    "tiering.round.min-work",
    duration(),
    "1 s",
    "A round whose limit passed before it could write works for so long all the same, so that a late table catches up.",
    JOB,
)
TIERING_COMMIT_MAX_ATTEMPTS = option(
    "tiering.commit.max-attempts", integer(minimum=1), "10", "Tries when foreign commits come between.", JOB
)
TIERING_SHUTDOWN_GRACE = option(
    "tiering.shutdown.grace", duration(), "30 s", "How long running rounds may take to end after SIGTERM.", JOB
)
TIERING_METRICS_PORT = optional(
    "tiering.metrics-port",
    integer(minimum=0, maximum=65_535),
    "no metrics of its own",
    "Port for the job's own /metrics; 0 takes a free one.",
    JOB,
)
TIERING_OTLP_ENDPOINT = optional(
    "tiering.otlp-endpoint",
    text(),
    "no traces",
    "Address of an OpenTelemetry collector (OTLP over HTTP) that gets a trace of each round.",
    JOB,
)
TIERING_OPENLINEAGE_URL = optional(
    "tiering.openlineage-url", text(), "no events", "Address that gets an OpenLineage event for each round.", JOB
)
TIERING_CACHE_DIR = optional(
    "tiering.cache-dir",
    path(),
    "lakeward in the user's cache folder",
    "Where the job keeps Java's class archive and its name.",
    JOB,
)
