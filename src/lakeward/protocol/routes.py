# SPDX-License-Identifier: Apache-2.0
"""Where each HTTP resource lives, and the protocol's version: `major.minor`. A peer one minor version older works; an
older one gets an error that names both."""

from __future__ import annotations

from lakeward.errors import IncompatibleVersion, InvalidRequest

DEFAULT_PORT = 9050
"""HTTP; Flight's port is asked from the server."""

API = "/api/v1"
INFO = f"{API}/info"
TABLES = f"{API}/tables"
TABLE = f"{API}/tables/{{table}}"
TABLE_STATUS = f"{API}/tables/{{table}}/status"
COMMITTED = f"{API}/tables/{{table}}/committed"
READ_PLAN = f"{API}/tables/{{table}}/read-plan"
EXPLAIN = f"{API}/tables/{{table}}/explain"
LEDGER = f"{API}/tables/{{table}}/ledger"
WRITER = f"{API}/tables/{{table}}/writer"
PARTITIONS = f"{API}/tables/{{table}}/partitions"
PARTITION = f"{API}/tables/{{table}}/partitions/{{partition}}"
MAINTAIN = f"{API}/tables/{{table}}/maintain"
PAUSE = f"{API}/tables/{{table}}/pause"
RESUME = f"{API}/tables/{{table}}/resume"
TIER_NOW = f"{API}/tables/{{table}}/tier-now"
ADOPT = f"{API}/tables/{{table}}/adopt"
ADOPTION = f"{API}/tables/{{table}}/adoption"
RESYNC = f"{API}/tables/{{table}}/resync"
RECONCILE_SCHEMA = f"{API}/tables/{{table}}/reconcile-schema"
DEFINE = f"{API}/tables/{{table}}/define"
SAMPLE = f"{API}/tables/{{table}}/sample"
TABLE_ROWS = f"{API}/tables/{{table}}/rows"
QUARANTINE = f"{API}/tables/{{table}}/quarantine"
EVOLVE = f"{API}/tables/{{table}}/evolve"
REDRIVE = f"{API}/tables/{{table}}/quarantine/redrive"
HOT = f"{API}/tables/{{table}}/hot"
LIVE = f"{API}/tables/{{table}}/live"
PROPERTIES = f"{API}/tables/{{table}}/properties"
REBUILD_LAKE = f"{API}/tables/{{table}}/rebuild-lake"
RESTORE_LAKE = f"{API}/tables/{{table}}/restore-lake"
LAKES = f"{API}/lakes"
LAKE_CHECK = f"{API}/lakes/{{lake}}/check"
DATABASES = f"{API}/databases"
DATABASE = f"{API}/databases/{{database}}"
CUTS = f"{API}/cuts"
CUT = f"{API}/cuts/{{cut}}"
CUT_SCHEDULES = f"{API}/cut-schedules"
CUT_SCHEDULE = f"{API}/cut-schedules/{{schedule}}"
SOURCES = f"{API}/sources"
SOURCE = f"{API}/sources/{{source}}"
SOURCE_OPEN = f"{API}/sources/{{source}}/open"
SOURCE_FILE = f"{API}/sources/{{source}}/files/{{file}}"
SOURCE_GROUPS = f"{API}/sources/{{source}}/groups"
SOURCE_BEAT = f"{API}/sources/{{source}}/beat"
SOURCE_HOLD = f"{API}/sources/{{source}}/hold"
SOURCE_PAUSE = f"{API}/sources/{{source}}/pause"
SOURCE_RESUME = f"{API}/sources/{{source}}/resume"
GROUP_MEMBERS = f"{API}/tables/{{table}}/groups/{{group}}"
STATUS = f"{API}/status"
DASHBOARD = f"{API}/dashboard"
LAG = f"{API}/tables/{{table}}/lag"
LAGS = f"{API}/lags"
SQL = f"{API}/sql"
LOG = f"{API}/log"
MAINTENANCE = f"{API}/maintenance"
COST = f"{API}/cost"
FACTS = f"{API}/facts"
BACKUPS = f"{API}/backups"
PROBE = f"{API}/probe"
JOBS = f"{API}/jobs"
ROUNDS = f"{API}/rounds"
QUEUE = f"{API}/queue"
ADMISSION = f"{API}/admission"
HEARTBEAT = f"{API}/heartbeat"
LEASE_CHECK = f"{API}/lease-check"
COMMITS = f"{API}/commits"
KNOWN_ROUND = f"{API}/ledger/{{table_id}}/rounds/{{round_id}}"
INTENTS = f"{API}/intents"
ABANDON_INTENT = f"{API}/intents/{{round_id}}/abandon"
RENEW_READ = f"{API}/read-leases/{{lease_id}}/renew"
RELEASE_READ = f"{API}/read-leases/{{lease_id}}"
HEALTH = "/healthz"
READY = "/readyz"
METRICS = "/metrics"
ICEBERG = "/iceberg"

LEASED_TYPE = "application/vnd.lakeward.leased-commit+json"
"""Of a commit to the catalog with a `LeasedCommit` in it. A server that knows none refuses the type, and so does not
commit without a look at the lease."""

OAUTH = f"{ICEBERG}/v1/oauth/tokens"
"""OAuth2 client credentials of the catalog: the only path below it that needs no token."""


STARTING = "it is starting"
"""The reason of a server that refuses because it has not recovered yet: nothing was done, so any call may be repeated.
"""


PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 3
PROTOCOL = f"{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}"
PROTOCOL_HEADER = "Lakeward-Protocol"
MINORS_SUPPORTED = 1

READ_PLANS_BY_POST = 3
"""The minor since which a read plan, which takes a lease, is asked for by POST."""


def check_peer(peer: str, theirs: str | None, *, ours: str = PROTOCOL) -> None:
    """Raises `IncompatibleVersion` unless both sides can talk. No version at all (curl, a browser) is let through.

    A newer minor is fine for us: unknown fields are skipped, and it is the newer side that knows both."""
    if theirs is None:
        return
    their_major, their_minor = _parse(theirs)
    our_major, our_minor = _parse(ours)
    if their_major != our_major or their_minor < our_minor - MINORS_SUPPORTED:
        raise IncompatibleVersion(peer=peer, what="protocol", theirs=theirs, ours=ours)


def is_older(theirs: str | None, minor: int) -> bool:
    """Does a peer say that it is of a version before this minor?"""
    return theirs is not None and _parse(theirs) < (PROTOCOL_MAJOR, minor)


def _parse(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and text.isascii() and major.isdigit() and minor.isdigit()):
        raise InvalidRequest(what=PROTOCOL_HEADER, reason=f"{text!r} is no major.minor")
    return int(major), int(minor)
