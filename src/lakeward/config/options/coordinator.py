# SPDX-License-Identifier: Apache-2.0
"""Options of the coordinator: deadlines, leases, upkeep."""

from __future__ import annotations

from lakeward.config.kinds import duration, integer, ratio, word_list
from lakeward.config.options.declare import MS, SERVER, option

COORDINATOR_LEASE_DURATION = option(
    "coordinator.lease.duration",
    duration(minimum=MS),
    "2 min",
    "A job silent for this long loses its rounds.",
    SERVER,
    fluss="2 min, fixed",
)
COORDINATOR_SWEEP_INTERVAL = option(
    "coordinator.sweep.interval",
    duration(minimum=MS),
    "15 s",
    "How often leases that ended are looked for.",
    SERVER,
    fluss="15 s, fixed",
)
COORDINATOR_HEARTBEAT_INTERVAL = option(
    "coordinator.heartbeat.interval",
    duration(minimum=MS),
    "5 s",
    "How often jobs are told to beat.",
    SERVER,
    fluss="the job's 30 s poll",
)
COORDINATOR_TICK = option(
    "coordinator.tick", duration(minimum=MS), "200 ms", "How often deadlines are looked at.", SERVER
)
COORDINATOR_SCHEDULE_MARGIN = option(
    "coordinator.schedule.margin",
    duration(),
    "500 ms",
    "How much sooner than needed a round starts, beside its expected duration.",
    SERVER,
)
COORDINATOR_BACKOFF_INITIAL = option(
    "coordinator.backoff.initial",
    duration(minimum=MS),
    "1 s",
    "Wait after a first failure; doubles each time.",
    SERVER,
    fluss="none",
)
COORDINATOR_BACKOFF_MAX = option(
    "coordinator.backoff.max", duration(minimum=MS), "5 min", "Longest wait after a failure.", SERVER
)
COORDINATOR_BACKOFF_JITTER = option(
    "coordinator.backoff.jitter", ratio(), "0.2", "Random share added to or taken from a wait.", SERVER
)
COORDINATOR_QUARANTINE_FAILURES = option(
    "coordinator.quarantine.failures",
    integer(minimum=1),
    "10",
    "Failures in a row after which a table waits for a person.",
    SERVER,
    fluss="never",
)
COORDINATOR_ORPHAN_GRACE = option(
    "coordinator.orphan.grace",
    duration(),
    "10 min",
    "How long after a lost lease files of a round are left alone; a cancelled task may still write.",
    SERVER,
)
COORDINATOR_ORPHAN_INTERVAL = option(
    "coordinator.orphan.interval", duration(minimum=MS), "10 min", "How often orphan files are looked for.", SERVER
)
COORDINATOR_MAINTENANCE_INTERVAL = option(
    "coordinator.maintenance.interval",
    duration(minimum=MS),
    "1 min",
    "How often lake snapshots that may go are looked for.",
    SERVER,
)
COORDINATOR_READ_LEASE_MAX = option(
    "coordinator.read-lease.max",
    duration(minimum=MS),
    "1 h",
    "Longest lease a reader gets at a time; it may renew.",
    SERVER,
)
COORDINATOR_TIER_NOW_LIMIT = option(
    "coordinator.tier-now.limit",
    duration(minimum=MS),
    "5 min",
    "Longest that a tier-now call waits for the lake.",
    SERVER,
)
COORDINATOR_ROUNDS_KEPT = option(
    "coordinator.rounds.kept", integer(minimum=1), "10000", "Finished rounds remembered in all.", SERVER
)
JOBS_EXPECTED = option(
    "jobs.expected",
    word_list(),
    "",
    "Names of jobs that should be alive; a missing one is shown red.",
    SERVER,
    fluss="not there",
)
