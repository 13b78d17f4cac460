from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorResponse(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class PbTablePath(_message.Message):
    __slots__ = ("database", "table")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    database: str
    table: str
    def __init__(self, database: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class PbKeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PbApiVersion(_message.Message):
    __slots__ = ("key", "min", "max")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    key: int
    min: int
    max: int
    def __init__(self, key: _Optional[int] = ..., min: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class ApiVersionsRequest(_message.Message):
    __slots__ = ("software", "version")
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    software: str
    version: str
    def __init__(self, software: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class ApiVersionsResponse(_message.Message):
    __slots__ = ("versions", "server_type")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TYPE_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[PbApiVersion]
    server_type: int
    def __init__(self, versions: _Optional[_Iterable[_Union[PbApiVersion, _Mapping]]] = ..., server_type: _Optional[int] = ...) -> None: ...

class AuthenticateRequest(_message.Message):
    __slots__ = ("protocol", "token")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    token: bytes
    def __init__(self, protocol: _Optional[str] = ..., token: _Optional[bytes] = ...) -> None: ...

class AuthenticateResponse(_message.Message):
    __slots__ = ("challenge",)
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    challenge: bytes
    def __init__(self, challenge: _Optional[bytes] = ...) -> None: ...

class PbServerNode(_message.Message):
    __slots__ = ("id", "host", "port")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    id: int
    host: str
    port: int
    def __init__(self, id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class PbBucketMetadata(_message.Message):
    __slots__ = ("bucket", "leader")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    bucket: int
    leader: int
    def __init__(self, bucket: _Optional[int] = ..., leader: _Optional[int] = ...) -> None: ...

class PbTableMetadata(_message.Message):
    __slots__ = ("path", "table_id", "buckets")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    path: PbTablePath
    table_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbBucketMetadata]
    def __init__(self, path: _Optional[_Union[PbTablePath, _Mapping]] = ..., table_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbBucketMetadata, _Mapping]]] = ...) -> None: ...

class PbPartitionMetadata(_message.Message):
    __slots__ = ("table_id", "name", "partition_id", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    name: str
    partition_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbBucketMetadata]
    def __init__(self, table_id: _Optional[int] = ..., name: _Optional[str] = ..., partition_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbBucketMetadata, _Mapping]]] = ...) -> None: ...

class MetadataRequest(_message.Message):
    __slots__ = ("paths", "partition_ids")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedCompositeFieldContainer[PbTablePath]
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, paths: _Optional[_Iterable[_Union[PbTablePath, _Mapping]]] = ..., partition_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class MetadataResponse(_message.Message):
    __slots__ = ("coordinator", "tablets", "tables", "partitions")
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    TABLETS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    coordinator: PbServerNode
    tablets: _containers.RepeatedCompositeFieldContainer[PbServerNode]
    tables: _containers.RepeatedCompositeFieldContainer[PbTableMetadata]
    partitions: _containers.RepeatedCompositeFieldContainer[PbPartitionMetadata]
    def __init__(self, coordinator: _Optional[_Union[PbServerNode, _Mapping]] = ..., tablets: _Optional[_Iterable[_Union[PbServerNode, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[PbTableMetadata, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PbPartitionMetadata, _Mapping]]] = ...) -> None: ...

class ListDatabasesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDatabasesResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = ("database",)
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    database: str
    def __init__(self, database: _Optional[str] = ...) -> None: ...

class ListTablesResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class GetTableInfoRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: PbTablePath
    def __init__(self, path: _Optional[_Union[PbTablePath, _Mapping]] = ...) -> None: ...

class GetTableInfoResponse(_message.Message):
    __slots__ = ("table_id", "schema_id", "json", "created", "modified")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    schema_id: int
    json: bytes
    created: int
    modified: int
    def __init__(self, table_id: _Optional[int] = ..., schema_id: _Optional[int] = ..., json: _Optional[bytes] = ..., created: _Optional[int] = ..., modified: _Optional[int] = ...) -> None: ...

class GetTableSchemaRequest(_message.Message):
    __slots__ = ("path", "schema_id")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    path: PbTablePath
    schema_id: int
    def __init__(self, path: _Optional[_Union[PbTablePath, _Mapping]] = ..., schema_id: _Optional[int] = ...) -> None: ...

class GetTableSchemaResponse(_message.Message):
    __slots__ = ("schema_id", "json")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    json: bytes
    def __init__(self, schema_id: _Optional[int] = ..., json: _Optional[bytes] = ...) -> None: ...

class PbPartitionSpec(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[PbKeyValue]
    def __init__(self, values: _Optional[_Iterable[_Union[PbKeyValue, _Mapping]]] = ...) -> None: ...

class PbPartitionInfo(_message.Message):
    __slots__ = ("partition_id", "spec", "bucket_count")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    BUCKET_COUNT_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    spec: PbPartitionSpec
    bucket_count: int
    def __init__(self, partition_id: _Optional[int] = ..., spec: _Optional[_Union[PbPartitionSpec, _Mapping]] = ..., bucket_count: _Optional[int] = ...) -> None: ...

class ListPartitionInfosRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: PbTablePath
    def __init__(self, path: _Optional[_Union[PbTablePath, _Mapping]] = ...) -> None: ...

class ListPartitionInfosResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PbPartitionInfo]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PbPartitionInfo, _Mapping]]] = ...) -> None: ...

class PbListOffsetsRespForBucket(_message.Message):
    __slots__ = ("bucket", "error_code", "error_message", "offset")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    bucket: int
    error_code: int
    error_message: str
    offset: int
    def __init__(self, bucket: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("follower", "kind", "table_id", "partition_id", "buckets", "timestamp")
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    follower: int
    kind: int
    table_id: int
    partition_id: int
    buckets: _containers.RepeatedScalarFieldContainer[int]
    timestamp: int
    def __init__(self, follower: _Optional[int] = ..., kind: _Optional[int] = ..., table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., buckets: _Optional[_Iterable[int]] = ..., timestamp: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("buckets",)
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[PbListOffsetsRespForBucket]
    def __init__(self, buckets: _Optional[_Iterable[_Union[PbListOffsetsRespForBucket, _Mapping]]] = ...) -> None: ...

class PbFetchLogReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket", "offset", "max_bytes")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket: int
    offset: int
    max_bytes: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket: _Optional[int] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PbFetchLogReqForTable(_message.Message):
    __slots__ = ("table_id", "is_projected", "columns", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_PROJECTED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    is_projected: bool
    columns: _containers.RepeatedScalarFieldContainer[int]
    buckets: _containers.RepeatedCompositeFieldContainer[PbFetchLogReqForBucket]
    def __init__(self, table_id: _Optional[int] = ..., is_projected: bool = ..., columns: _Optional[_Iterable[int]] = ..., buckets: _Optional[_Iterable[_Union[PbFetchLogReqForBucket, _Mapping]]] = ...) -> None: ...

class PbRemoteLogSegment(_message.Message):
    __slots__ = ("id", "start", "end", "size", "max_timestamp")
    ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    id: str
    start: int
    end: int
    size: int
    max_timestamp: int
    def __init__(self, id: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., size: _Optional[int] = ..., max_timestamp: _Optional[int] = ...) -> None: ...

class PbRemoteLogFetchInfo(_message.Message):
    __slots__ = ("folder", "partition", "segments", "first_position")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    folder: str
    partition: str
    segments: _containers.RepeatedCompositeFieldContainer[PbRemoteLogSegment]
    first_position: int
    def __init__(self, folder: _Optional[str] = ..., partition: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[PbRemoteLogSegment, _Mapping]]] = ..., first_position: _Optional[int] = ...) -> None: ...

class PbFetchLogRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket", "error_code", "error_message", "high_watermark", "log_start", "remote", "records")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket: int
    error_code: int
    error_message: str
    high_watermark: int
    log_start: int
    remote: PbRemoteLogFetchInfo
    records: bytes
    def __init__(self, partition_id: _Optional[int] = ..., bucket: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., high_watermark: _Optional[int] = ..., log_start: _Optional[int] = ..., remote: _Optional[_Union[PbRemoteLogFetchInfo, _Mapping]] = ..., records: _Optional[bytes] = ...) -> None: ...

class PbFetchLogRespForTable(_message.Message):
    __slots__ = ("table_id", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbFetchLogRespForBucket]
    def __init__(self, table_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbFetchLogRespForBucket, _Mapping]]] = ...) -> None: ...

class FetchLogRequest(_message.Message):
    __slots__ = ("follower", "max_bytes", "tables", "max_wait_ms", "min_bytes")
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    follower: int
    max_bytes: int
    tables: _containers.RepeatedCompositeFieldContainer[PbFetchLogReqForTable]
    max_wait_ms: int
    min_bytes: int
    def __init__(self, follower: _Optional[int] = ..., max_bytes: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[PbFetchLogReqForTable, _Mapping]]] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ...) -> None: ...

class FetchLogResponse(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[PbFetchLogRespForTable]
    def __init__(self, tables: _Optional[_Iterable[_Union[PbFetchLogRespForTable, _Mapping]]] = ...) -> None: ...

class PbKvSnapshot(_message.Message):
    __slots__ = ("bucket", "snapshot_id", "log_offset")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    bucket: int
    snapshot_id: int
    log_offset: int
    def __init__(self, bucket: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., log_offset: _Optional[int] = ...) -> None: ...

class GetLatestKvSnapshotsRequest(_message.Message):
    __slots__ = ("path", "partition")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    path: PbTablePath
    partition: str
    def __init__(self, path: _Optional[_Union[PbTablePath, _Mapping]] = ..., partition: _Optional[str] = ...) -> None: ...

class GetLatestKvSnapshotsResponse(_message.Message):
    __slots__ = ("table_id", "partition_id", "snapshots")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    snapshots: _containers.RepeatedCompositeFieldContainer[PbKvSnapshot]
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., snapshots: _Optional[_Iterable[_Union[PbKvSnapshot, _Mapping]]] = ...) -> None: ...

class PbRemotePathAndLocalFile(_message.Message):
    __slots__ = ("remote", "local")
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    remote: str
    local: str
    def __init__(self, remote: _Optional[str] = ..., local: _Optional[str] = ...) -> None: ...

class GetKvSnapshotMetadataRequest(_message.Message):
    __slots__ = ("table_id", "partition_id", "bucket", "snapshot_id")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    partition_id: int
    bucket: int
    snapshot_id: int
    def __init__(self, table_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., bucket: _Optional[int] = ..., snapshot_id: _Optional[int] = ...) -> None: ...

class GetKvSnapshotMetadataResponse(_message.Message):
    __slots__ = ("log_offset", "files")
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    log_offset: int
    files: _containers.RepeatedCompositeFieldContainer[PbRemotePathAndLocalFile]
    def __init__(self, log_offset: _Optional[int] = ..., files: _Optional[_Iterable[_Union[PbRemotePathAndLocalFile, _Mapping]]] = ...) -> None: ...

class PbKvSnapshotLeaseForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket", "snapshot_id")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket: int
    snapshot_id: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket: _Optional[int] = ..., snapshot_id: _Optional[int] = ...) -> None: ...

class PbKvSnapshotLeaseForTable(_message.Message):
    __slots__ = ("table_id", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbKvSnapshotLeaseForBucket]
    def __init__(self, table_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbKvSnapshotLeaseForBucket, _Mapping]]] = ...) -> None: ...

class AcquireKvSnapshotLeaseRequest(_message.Message):
    __slots__ = ("lease_id", "duration_ms", "tables")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    duration_ms: int
    tables: _containers.RepeatedCompositeFieldContainer[PbKvSnapshotLeaseForTable]
    def __init__(self, lease_id: _Optional[str] = ..., duration_ms: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[PbKvSnapshotLeaseForTable, _Mapping]]] = ...) -> None: ...

class AcquireKvSnapshotLeaseResponse(_message.Message):
    __slots__ = ("unavailable",)
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    unavailable: _containers.RepeatedCompositeFieldContainer[PbKvSnapshotLeaseForTable]
    def __init__(self, unavailable: _Optional[_Iterable[_Union[PbKvSnapshotLeaseForTable, _Mapping]]] = ...) -> None: ...

class DropKvSnapshotLeaseRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class DropKvSnapshotLeaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PbLakeTieringStats(_message.Message):
    __slots__ = ("file_size", "record_count")
    FILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    file_size: int
    record_count: int
    def __init__(self, file_size: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class PbHeartbeatReqForTable(_message.Message):
    __slots__ = ("table_id", "coordinator_epoch", "tiering_epoch", "stats")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    coordinator_epoch: int
    tiering_epoch: int
    stats: PbLakeTieringStats
    def __init__(self, table_id: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., tiering_epoch: _Optional[int] = ..., stats: _Optional[_Union[PbLakeTieringStats, _Mapping]] = ...) -> None: ...

class PbHeartbeatRespForTable(_message.Message):
    __slots__ = ("table_id", "error")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    error: ErrorResponse
    def __init__(self, table_id: _Optional[int] = ..., error: _Optional[_Union[ErrorResponse, _Mapping]] = ...) -> None: ...

class PbLakeTieringTableInfo(_message.Message):
    __slots__ = ("table_id", "path", "tiering_epoch")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TIERING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    path: PbTablePath
    tiering_epoch: int
    def __init__(self, table_id: _Optional[int] = ..., path: _Optional[_Union[PbTablePath, _Mapping]] = ..., tiering_epoch: _Optional[int] = ...) -> None: ...

class LakeTieringHeartbeatRequest(_message.Message):
    __slots__ = ("tiering", "finished", "failed", "request_table", "force_finished")
    TIERING_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TABLE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FINISHED_FIELD_NUMBER: _ClassVar[int]
    tiering: _containers.RepeatedCompositeFieldContainer[PbHeartbeatReqForTable]
    finished: _containers.RepeatedCompositeFieldContainer[PbHeartbeatReqForTable]
    failed: _containers.RepeatedCompositeFieldContainer[PbHeartbeatReqForTable]
    request_table: bool
    force_finished: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tiering: _Optional[_Iterable[_Union[PbHeartbeatReqForTable, _Mapping]]] = ..., finished: _Optional[_Iterable[_Union[PbHeartbeatReqForTable, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[PbHeartbeatReqForTable, _Mapping]]] = ..., request_table: bool = ..., force_finished: _Optional[_Iterable[int]] = ...) -> None: ...

class LakeTieringHeartbeatResponse(_message.Message):
    __slots__ = ("coordinator_epoch", "table", "tiering", "finished", "failed")
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TIERING_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    coordinator_epoch: int
    table: PbLakeTieringTableInfo
    tiering: _containers.RepeatedCompositeFieldContainer[PbHeartbeatRespForTable]
    finished: _containers.RepeatedCompositeFieldContainer[PbHeartbeatRespForTable]
    failed: _containers.RepeatedCompositeFieldContainer[PbHeartbeatRespForTable]
    def __init__(self, coordinator_epoch: _Optional[int] = ..., table: _Optional[_Union[PbLakeTieringTableInfo, _Mapping]] = ..., tiering: _Optional[_Iterable[_Union[PbHeartbeatRespForTable, _Mapping]]] = ..., finished: _Optional[_Iterable[_Union[PbHeartbeatRespForTable, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[PbHeartbeatRespForTable, _Mapping]]] = ...) -> None: ...

class PbLakeSnapshotForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket", "offset")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket: int
    offset: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GetLakeSnapshotRequest(_message.Message):
    __slots__ = ("path", "snapshot_id", "readable")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    READABLE_FIELD_NUMBER: _ClassVar[int]
    path: PbTablePath
    snapshot_id: int
    readable: bool
    def __init__(self, path: _Optional[_Union[PbTablePath, _Mapping]] = ..., snapshot_id: _Optional[int] = ..., readable: bool = ...) -> None: ...

class GetLakeSnapshotResponse(_message.Message):
    __slots__ = ("table_id", "snapshot_id", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    snapshot_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbLakeSnapshotForBucket]
    def __init__(self, table_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbLakeSnapshotForBucket, _Mapping]]] = ...) -> None: ...

class PbBucketOffset(_message.Message):
    __slots__ = ("partition_id", "bucket", "log_end_offset", "max_timestamp")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket: int
    log_end_offset: int
    max_timestamp: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., max_timestamp: _Optional[int] = ...) -> None: ...

class PbTableOffsets(_message.Message):
    __slots__ = ("table_id", "path", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    path: PbTablePath
    buckets: _containers.RepeatedCompositeFieldContainer[PbBucketOffset]
    def __init__(self, table_id: _Optional[int] = ..., path: _Optional[_Union[PbTablePath, _Mapping]] = ..., buckets: _Optional[_Iterable[_Union[PbBucketOffset, _Mapping]]] = ...) -> None: ...

class PbPrepareLakeTableRespForTable(_message.Message):
    __slots__ = ("error_code", "error_message", "table_id", "path")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    table_id: int
    path: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., table_id: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class PrepareLakeTableSnapshotRequest(_message.Message):
    __slots__ = ("tables", "ignore_previous")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    IGNORE_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[PbTableOffsets]
    ignore_previous: bool
    def __init__(self, tables: _Optional[_Iterable[_Union[PbTableOffsets, _Mapping]]] = ..., ignore_previous: bool = ...) -> None: ...

class PrepareLakeTableSnapshotResponse(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[PbPrepareLakeTableRespForTable]
    def __init__(self, tables: _Optional[_Iterable[_Union[PbPrepareLakeTableRespForTable, _Mapping]]] = ...) -> None: ...

class PbLakeTableSnapshotInfo(_message.Message):
    __slots__ = ("table_id", "snapshot_id", "buckets", "path")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    snapshot_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbBucketOffset]
    path: PbTablePath
    def __init__(self, table_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbBucketOffset, _Mapping]]] = ..., path: _Optional[_Union[PbTablePath, _Mapping]] = ...) -> None: ...

class PbLakeTableSnapshotMetadata(_message.Message):
    __slots__ = ("table_id", "snapshot_id", "tiered", "readable", "keep_from")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    TIERED_FIELD_NUMBER: _ClassVar[int]
    READABLE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FROM_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    snapshot_id: int
    tiered: str
    readable: str
    keep_from: int
    def __init__(self, table_id: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., tiered: _Optional[str] = ..., readable: _Optional[str] = ..., keep_from: _Optional[int] = ...) -> None: ...

class PbCommitLakeTableSnapshotRespForTable(_message.Message):
    __slots__ = ("error_code", "error_message", "table_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    table_id: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., table_id: _Optional[int] = ...) -> None: ...

class CommitLakeTableSnapshotRequest(_message.Message):
    __slots__ = ("tables", "snapshots")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[PbLakeTableSnapshotInfo]
    snapshots: _containers.RepeatedCompositeFieldContainer[PbLakeTableSnapshotMetadata]
    def __init__(self, tables: _Optional[_Iterable[_Union[PbLakeTableSnapshotInfo, _Mapping]]] = ..., snapshots: _Optional[_Iterable[_Union[PbLakeTableSnapshotMetadata, _Mapping]]] = ...) -> None: ...

class CommitLakeTableSnapshotResponse(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[PbCommitLakeTableSnapshotRespForTable]
    def __init__(self, tables: _Optional[_Iterable[_Union[PbCommitLakeTableSnapshotRespForTable, _Mapping]]] = ...) -> None: ...
