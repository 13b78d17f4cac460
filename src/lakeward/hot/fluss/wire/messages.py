# SPDX-License-Identifier: Apache-2.0
"""The calls of Fluss's RPC that tiering and reading need: key, request and response of each, as tables."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.hot.fluss.wire.protobuf import Shape, integer, integers, many, one, raw, text, texts


@dataclass(frozen=True)
class Api:
    key: int
    name: str
    request: Shape
    response: Shape


ERROR = Shape("ErrorResponse", (integer("code", 1), text("message", 2)))
PATH = Shape("PbTablePath", (text("database", 1), text("table", 2)))
_KEY_VALUE = Shape("PbKeyValue", (text("key", 1), text("value", 2)))

# ---- connection ------------------------------------------------------------------------------------------------------
_VERSION = Shape("PbApiVersion", (integer("key", 1), integer("min", 2), integer("max", 3)))
API_VERSIONS = Api(
    1000,
    "ApiVersions",
    Shape("ApiVersionsRequest", (text("software", 1), text("version", 2))),
    Shape("ApiVersionsResponse", (many("versions", 1, _VERSION), integer("server_type", 2))),
)
AUTHENTICATE = Api(
    1038,
    "Authenticate",
    Shape("AuthenticateRequest", (text("protocol", 1), raw("token", 2))),
    Shape("AuthenticateResponse", (raw("challenge", 1),)),
)

# ---- metadata --------------------------------------------------------------------------------------------------------
_NODE = Shape("PbServerNode", (integer("id", 1), text("host", 2), integer("port", 3)))
_BUCKET_LEADER = Shape("PbBucketMetadata", (integer("bucket", 1), integer("leader", 2)))
_TABLE_LEADERS = Shape(
    "PbTableMetadata", (one("path", 1, PATH), integer("table_id", 2), many("buckets", 5, _BUCKET_LEADER))
)
_PARTITION_LEADERS = Shape(
    "PbPartitionMetadata",
    (integer("table_id", 1), text("name", 2), integer("partition_id", 3), many("buckets", 4, _BUCKET_LEADER)),
)
METADATA = Api(
    1012,
    "GetMetadata",
    Shape("MetadataRequest", (many("paths", 1, PATH), integers("partition_ids", 3, packed=True))),
    Shape(
        "MetadataResponse",
        (
            one("coordinator", 1, _NODE),
            many("tablets", 2, _NODE),
            many("tables", 3, _TABLE_LEADERS),
            many("partitions", 4, _PARTITION_LEADERS),
        ),
    ),
)
LIST_DATABASES = Api(
    1003, "ListDatabases", Shape("ListDatabasesRequest", ()), Shape("ListDatabasesResponse", (texts("names", 1),))
)
LIST_TABLES = Api(
    1008,
    "ListTables",
    Shape("ListTablesRequest", (text("database", 1),)),
    Shape("ListTablesResponse", (texts("names", 1),)),
)
TABLE_INFO = Api(
    1007,
    "GetTableInfo",
    Shape("GetTableInfoRequest", (one("path", 1, PATH),)),
    Shape(
        "GetTableInfoResponse",
        (
            integer("table_id", 1),
            integer("schema_id", 2),
            raw("json", 3),
            integer("created", 4),
            integer("modified", 5),
        ),
    ),
)
TABLE_SCHEMA = Api(
    1011,
    "GetTableSchema",
    Shape("GetTableSchemaRequest", (one("path", 1, PATH), integer("schema_id", 2))),
    Shape("GetTableSchemaResponse", (integer("schema_id", 1), raw("json", 2))),
)
_SPEC = Shape("PbPartitionSpec", (many("values", 1, _KEY_VALUE),))
_PARTITION = Shape("PbPartitionInfo", (integer("partition_id", 1), one("spec", 2, _SPEC), integer("bucket_count", 4)))
LIST_PARTITIONS = Api(
    1009,
    "ListPartitionInfos",
    Shape("ListPartitionInfosRequest", (one("path", 1, PATH),)),
    Shape("ListPartitionInfosResponse", (many("partitions", 1, _PARTITION),)),
)

# ---- the log ---------------------------------------------------------------------------------------------------------
EARLIEST, LATEST, TIMESTAMP = 0, 1, 2
CLIENT = -1
"""The follower id of a reader that is no replica."""

ALTER_DATABASE = 1060
"""Not called: that a coordinator knows it tells 1.0 from what came before."""

SCAN_KV = 1061
"""Not called here. Tablet servers have it from Fluss 1.0 on: it tells which Fluss this is."""

_OFFSET = Shape(
    "PbListOffsetsRespForBucket",
    (integer("bucket", 1), integer("error_code", 2), text("error_message", 3), integer("offset", 4)),
)
LIST_OFFSETS = Api(
    1021,
    "ListOffsets",
    Shape(
        "ListOffsetsRequest",
        (
            integer("follower", 1),
            integer("kind", 2),
            integer("table_id", 3),
            integer("partition_id", 4),
            integers("buckets", 5, packed=True),
            integer("timestamp", 6),
        ),
    ),
    Shape("ListOffsetsResponse", (many("buckets", 1, _OFFSET),)),
)
_FETCH_BUCKET = Shape(
    "PbFetchLogReqForBucket",
    (integer("partition_id", 1), integer("bucket", 2), integer("offset", 3), integer("max_bytes", 4)),
)
_FETCH_TABLE = Shape(
    "PbFetchLogReqForTable",
    (
        integer("table_id", 1),
        integer("is_projected", 2),
        integers("columns", 3, packed=True),
        many("buckets", 4, _FETCH_BUCKET),
    ),
)
_SEGMENT = Shape(
    "PbRemoteLogSegment",
    (text("id", 1), integer("start", 2), integer("end", 3), integer("size", 4), integer("max_timestamp", 5)),
)
_REMOTE = Shape(
    "PbRemoteLogFetchInfo",
    (text("folder", 1), text("partition", 2), many("segments", 3, _SEGMENT), integer("first_position", 4)),
)
_FETCHED_BUCKET = Shape(
    "PbFetchLogRespForBucket",
    (
        integer("partition_id", 1),
        integer("bucket", 2),
        integer("error_code", 3),
        text("error_message", 4),
        integer("high_watermark", 5),
        integer("log_start", 6),
        one("remote", 7, _REMOTE),
        raw("records", 8),
    ),
)
_FETCHED_TABLE = Shape("PbFetchLogRespForTable", (integer("table_id", 1), many("buckets", 2, _FETCHED_BUCKET)))
FETCH_LOG = Api(
    1015,
    "FetchLog",
    Shape(
        "FetchLogRequest",
        (
            integer("follower", 1),
            integer("max_bytes", 2),
            many("tables", 3, _FETCH_TABLE),
            integer("max_wait_ms", 4),
            integer("min_bytes", 5),
        ),
    ),
    Shape("FetchLogResponse", (many("tables", 1, _FETCHED_TABLE),)),
)

# ---- KV snapshots ----------------------------------------------------------------------------------------------------
_KV_SNAPSHOT = Shape("PbKvSnapshot", (integer("bucket", 1), integer("snapshot_id", 2), integer("log_offset", 3)))
LATEST_KV_SNAPSHOTS = Api(
    1023,
    "GetLatestKvSnapshots",
    Shape("GetLatestKvSnapshotsRequest", (one("path", 1, PATH), text("partition", 2))),
    Shape(
        "GetLatestKvSnapshotsResponse",
        (integer("table_id", 1), integer("partition_id", 2), many("snapshots", 3, _KV_SNAPSHOT)),
    ),
)
_KV_FILE = Shape("PbRemotePathAndLocalFile", (text("remote", 1), text("local", 2)))
KV_SNAPSHOT = Api(
    1024,
    "GetKvSnapshotMetadata",
    Shape(
        "GetKvSnapshotMetadataRequest",
        (integer("table_id", 1), integer("partition_id", 2), integer("bucket", 3), integer("snapshot_id", 4)),
    ),
    Shape("GetKvSnapshotMetadataResponse", (integer("log_offset", 1), many("files", 2, _KV_FILE))),
)
_LEASED_BUCKET = Shape(
    "PbKvSnapshotLeaseForBucket", (integer("partition_id", 1), integer("bucket", 2), integer("snapshot_id", 3))
)
_LEASED_TABLE = Shape("PbKvSnapshotLeaseForTable", (integer("table_id", 1), many("buckets", 2, _LEASED_BUCKET)))
ACQUIRE_KV_LEASE = Api(
    1056,
    "AcquireKvSnapshotLease",
    Shape(
        "AcquireKvSnapshotLeaseRequest",
        (text("lease_id", 1), integer("duration_ms", 2), many("tables", 3, _LEASED_TABLE)),
    ),
    Shape("AcquireKvSnapshotLeaseResponse", (many("unavailable", 1, _LEASED_TABLE),)),
)
DROP_KV_LEASE = Api(
    1058,
    "DropKvSnapshotLease",
    Shape("DropKvSnapshotLeaseRequest", (text("lease_id", 1),)),
    Shape("DropKvSnapshotLeaseResponse", ()),
)

# ---- tiering ---------------------------------------------------------------------------------------------------------
_STATS = Shape("PbLakeTieringStats", (integer("file_size", 1), integer("record_count", 2)))
_BEAT = Shape(
    "PbHeartbeatReqForTable",
    (integer("table_id", 1), integer("coordinator_epoch", 2), integer("tiering_epoch", 3), one("stats", 4, _STATS)),
)
_BEAT_ANSWER = Shape("PbHeartbeatRespForTable", (integer("table_id", 1), one("error", 2, ERROR)))
_TO_TIER = Shape("PbLakeTieringTableInfo", (integer("table_id", 1), one("path", 2, PATH), integer("tiering_epoch", 3)))
HEARTBEAT = Api(
    1042,
    "LakeTieringHeartbeat",
    Shape(
        "LakeTieringHeartbeatRequest",
        (
            many("tiering", 1, _BEAT),
            many("finished", 2, _BEAT),
            many("failed", 3, _BEAT),
            integer("request_table", 4),
            integers("force_finished", 5),
        ),
    ),
    Shape(
        "LakeTieringHeartbeatResponse",
        (
            integer("coordinator_epoch", 1),
            one("table", 2, _TO_TIER),
            many("tiering", 3, _BEAT_ANSWER),
            many("finished", 4, _BEAT_ANSWER),
            many("failed", 5, _BEAT_ANSWER),
        ),
    ),
)
_LAKE_BUCKET = Shape(
    "PbLakeSnapshotForBucket", (integer("partition_id", 1), integer("bucket", 2), integer("offset", 3))
)
LAKE_SNAPSHOT = Api(
    1032,
    "GetLakeSnapshot",
    Shape("GetLakeSnapshotRequest", (one("path", 1, PATH), integer("snapshot_id", 2), integer("readable", 3))),
    Shape(
        "GetLakeSnapshotResponse", (integer("table_id", 1), integer("snapshot_id", 2), many("buckets", 3, _LAKE_BUCKET))
    ),
)
_BUCKET_END = Shape(
    "PbBucketOffset",
    (integer("partition_id", 1), integer("bucket", 2), integer("log_end_offset", 4), integer("max_timestamp", 6)),
)
_TABLE_ENDS = Shape("PbTableOffsets", (integer("table_id", 1), one("path", 2, PATH), many("buckets", 3, _BUCKET_END)))
_PREPARED = Shape(
    "PbPrepareLakeTableRespForTable",
    (integer("error_code", 1), text("error_message", 2), integer("table_id", 3), text("path", 4)),
)
PREPARE_LAKE = Api(
    1052,
    "PrepareLakeTableSnapshot",
    Shape("PrepareLakeTableSnapshotRequest", (many("tables", 1, _TABLE_ENDS), integer("ignore_previous", 2))),
    Shape("PrepareLakeTableSnapshotResponse", (many("tables", 1, _PREPARED),)),
)
_COMMITTED_TABLE = Shape(
    "PbLakeTableSnapshotInfo",
    (integer("table_id", 1), integer("snapshot_id", 2), many("buckets", 3, _BUCKET_END), one("path", 4, PATH)),
)
_COMMITTED_SNAPSHOT = Shape(
    "PbLakeTableSnapshotMetadata",
    (
        integer("table_id", 1),
        integer("snapshot_id", 2),
        text("tiered", 3),
        text("readable", 4),
        integer("keep_from", 5),
    ),
)
_COMMIT_ANSWER = Shape(
    "PbCommitLakeTableSnapshotRespForTable",
    (integer("error_code", 1), text("error_message", 2), integer("table_id", 3)),
)
COMMIT_LAKE = Api(
    1030,
    "CommitLakeTableSnapshot",
    Shape(
        "CommitLakeTableSnapshotRequest",
        (many("tables", 1, _COMMITTED_TABLE), many("snapshots", 2, _COMMITTED_SNAPSHOT)),
    ),
    Shape("CommitLakeTableSnapshotResponse", (many("tables", 1, _COMMIT_ANSWER),)),
)
