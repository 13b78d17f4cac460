# SPDX-License-Identifier: Apache-2.0
"""Messages about sources, and the frames in which a source sends the rows of a group."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO

from lakeward.errors import InvalidRequest
from lakeward.model import TablePath

_LENGTHS = struct.Struct(">IQ")
_LONGEST_HEADER = 1 << 20


class FrameKind(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"
    UPDATE = "update"
    """Sets `columns` of rows that exist; rows with absent keys are skipped."""

    DELETE = "delete"
    TRUNCATE = "truncate"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One step of a group: rows of one table, as an Arrow stream behind the header. `columns`: those that an upsert or
    update sets; None: all."""

    table: TablePath
    kind: FrameKind
    columns: tuple[str, ...] | None = None

    def to_bytes(self, payload: bytes) -> bytes:
        columns = None if self.columns is None else list(self.columns)
        header = json.dumps({"table": str(self.table), "kind": str(self.kind), "columns": columns}).encode()
        return _LENGTHS.pack(len(header), len(payload)) + header + payload


def read_frames(file: BinaryIO, size: int) -> Iterator[tuple[Frame, bytes]]:
    """The frames of a file of `size` bytes. Raises `InvalidRequest`."""
    position = 0
    while position < size:
        prefix = file.read(_LENGTHS.size)
        if len(prefix) < _LENGTHS.size:
            raise _malformed("it ends in the middle of a frame")
        header_size, payload_size = _LENGTHS.unpack(prefix)
        position += _LENGTHS.size + header_size + payload_size
        if header_size > _LONGEST_HEADER or position > size:
            raise _malformed("a frame is longer than the file")
        yield _read_header(file.read(header_size)), file.read(payload_size)


def _read_header(raw: bytes) -> Frame:
    try:
        body = json.loads(raw)
        columns = body.get("columns")
        names = None if columns is None else tuple(str(name) for name in columns)
        return Frame(table=TablePath.parse(str(body["table"])), kind=FrameKind(body["kind"]), columns=names)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _malformed(f"a frame's header cannot be read: {error}") from error


def _malformed(reason: str) -> InvalidRequest:
    return InvalidRequest(what="group of a source", reason=reason)


@dataclass(frozen=True, kw_only=True)
class SourceLag:
    """How far a source is behind its origin; None: unknown. `slot_bytes`: log that the origin retains for it."""

    messages: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    slot_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """`state` is the position after `group` groups: the server stores it together with their rows. `config` has no
    secrets. `hold_at`: the position at which the ingest process waits until the hold ends."""

    source_id: str
    name: str
    kind: str
    owner: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    created_at_ms: int = 0
    epoch: int = 0
    group: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    tables: tuple[str, ...] = ()
    paused: bool = False
    committed_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceStatus:
    """A source and what its ingest process last reported. `phase`: `waiting` (no process has reported for a while),
    `paused`, `stopped` (with `error`), or the kind's own, as `snapshot` and `streaming`."""

    source: SourceInfo
    phase: str
    position: str = ""
    lag: SourceLag = field(default_factory=SourceLag)
    error: str = ""
    beat_at_ms: int | None = None
    hold_at: str | None = None
    held_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class CreateSource:
    """With `if_not_exists` a source with the same kind and configuration is returned."""

    name: str
    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceList:
    sources: tuple[SourceStatus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupFile:
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class CommitGroup:
    """Group number `group` under `epoch`: its files in order, and the position after it. Sent again it changes
    nothing."""

    epoch: int
    group: int
    state: Mapping[str, Any]
    files: tuple[GroupFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceBeat:
    epoch: int
    phase: str
    position: str = ""
    lag: SourceLag = field(default_factory=SourceLag)
    error: str = ""
    held_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class HoldSource:
    """Holds the ingest process at a position, for `lease_s` unless renewed; None ends the hold."""

    position: str | None = None
    lease_s: float = 30.0
