# SPDX-License-Identifier: Apache-2.0
"""The calls of Fluss's RPC that tiering and reading need: key, request and response of each, and how values travel.

Values are plain dicts: a field that was not sent is a missing key, and repeated fields are lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Wire

from lakeward.errors import InvalidRequest
from lakeward.hot.fluss.wire import rpc_pb2 as rpc

Message = dict[str, Any]


@dataclass(frozen=True)
class Api:
    key: int
    name: str
    request: type[Wire]
    response: type[Wire]


def encode(kind: type[Wire], values: Mapping[str, Any]) -> bytes:
    """A value of None is left out. Raises `InvalidRequest` for values that the message does not take."""
    try:
        return kind(**values).SerializeToString()
    except (ValueError, TypeError) as error:
        raise InvalidRequest(what=kind.__name__, reason=str(error)) from error


def decode(kind: type[Wire], data: bytes | bytearray | memoryview) -> Message:
    """Raises `InvalidRequest` for bytes that are not such a message."""
    try:
        return _to_dict(kind.FromString(bytes(data)))
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(what=kind.__name__, reason=str(error)) from error


def _to_dict(message: Wire) -> Message:
    return {field.name: _plain(value, field.is_repeated) for field, value in message.ListFields()}


def _plain(value: Any, is_repeated: bool) -> Any:
    if is_repeated:
        return [_plain(item, False) for item in value]
    return _to_dict(value) if isinstance(value, Wire) else value


ERROR = rpc.ErrorResponse

API_VERSIONS = Api(1000, "ApiVersions", rpc.ApiVersionsRequest, rpc.ApiVersionsResponse)
AUTHENTICATE = Api(1038, "Authenticate", rpc.AuthenticateRequest, rpc.AuthenticateResponse)
METADATA = Api(1012, "GetMetadata", rpc.MetadataRequest, rpc.MetadataResponse)
LIST_DATABASES = Api(1003, "ListDatabases", rpc.ListDatabasesRequest, rpc.ListDatabasesResponse)
LIST_TABLES = Api(1008, "ListTables", rpc.ListTablesRequest, rpc.ListTablesResponse)
TABLE_INFO = Api(1007, "GetTableInfo", rpc.GetTableInfoRequest, rpc.GetTableInfoResponse)
TABLE_SCHEMA = Api(1011, "GetTableSchema", rpc.GetTableSchemaRequest, rpc.GetTableSchemaResponse)
LIST_PARTITIONS = Api(1009, "ListPartitionInfos", rpc.ListPartitionInfosRequest, rpc.ListPartitionInfosResponse)
LIST_OFFSETS = Api(1021, "ListOffsets", rpc.ListOffsetsRequest, rpc.ListOffsetsResponse)
FETCH_LOG = Api(1015, "FetchLog", rpc.FetchLogRequest, rpc.FetchLogResponse)
LATEST_KV_SNAPSHOTS = Api(
    1023, "GetLatestKvSnapshots", rpc.GetLatestKvSnapshotsRequest, rpc.GetLatestKvSnapshotsResponse
)
KV_SNAPSHOT = Api(1024, "GetKvSnapshotMetadata", rpc.GetKvSnapshotMetadataRequest, rpc.GetKvSnapshotMetadataResponse)
ACQUIRE_KV_LEASE = Api(
    1056, "AcquireKvSnapshotLease", rpc.AcquireKvSnapshotLeaseRequest, rpc.AcquireKvSnapshotLeaseResponse
)
DROP_KV_LEASE = Api(1058, "DropKvSnapshotLease", rpc.DropKvSnapshotLeaseRequest, rpc.DropKvSnapshotLeaseResponse)
HEARTBEAT = Api(1042, "LakeTieringHeartbeat", rpc.LakeTieringHeartbeatRequest, rpc.LakeTieringHeartbeatResponse)
LAKE_SNAPSHOT = Api(1032, "GetLakeSnapshot", rpc.GetLakeSnapshotRequest, rpc.GetLakeSnapshotResponse)
PREPARE_LAKE = Api(
    1052, "PrepareLakeTableSnapshot", rpc.PrepareLakeTableSnapshotRequest, rpc.PrepareLakeTableSnapshotResponse
)
COMMIT_LAKE = Api(
    1030, "CommitLakeTableSnapshot", rpc.CommitLakeTableSnapshotRequest, rpc.CommitLakeTableSnapshotResponse
)

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2
"""Kinds of `ListOffsets`."""

CLIENT = -1
"""The follower id of a reader that is not a replica."""

ALTER_DATABASE = 1060
"""Not called: a coordinator that knows it is one of 1.0 or newer."""

SCAN_KV = 1061
"""Not called: a tablet server that knows it is one of 1.0 or newer."""
