# SPDX-License-Identifier: Apache-2.0
"""Decodes pgoutput, protocol version 1: the messages of Postgres's own logical decoding, with values as text."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakeward.errors import InvalidRequest
from lakeward.source.changes import UNSET

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_SHORT, _LENGTH = struct.Struct(">H"), struct.Struct(">i")

Values = list[object]
"""Text, None for NULL, `UNSET` for a TOAST value that did not change."""


@dataclass(frozen=True, slots=True)
class Begin:
    commit_lsn: int
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    relation_id: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """`old`: the key columns (others None) or, with REPLICA IDENTITY FULL (`is_full`), the whole old row. `new` None: a
    delete."""

    relation_id: int
    old: Values | None
    new: Values | None
    is_full: bool
    is_insert: bool
    size: int

    def only(self, places: Sequence[int]) -> RowChange:
        """With these columns alone."""
        old, new = (None if row is None else [row[place] for place in places] for row in (self.old, self.new))
        return replace(self, old=old, new=new)


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_ids: tuple[int, ...]


Message = Begin | Commit | Relation | RowChange | Truncate


def decode(payload: bytes) -> Message | None:
    """None for messages that change no row. Raises `InvalidRequest` for bytes that are no pgoutput."""
    try:
        kind = payload[0:1]
        if kind in b"IUD":
            return _row_change(payload)
        if kind == b"B":
            commit_lsn, at_us, _ = _BEGIN.unpack_from(payload, 1)
            return Begin(commit_lsn, at_us)
        if kind == b"C":
            _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(payload, 1)
            return Commit(commit_lsn, end_lsn)
        if kind == b"R":
            return _relation(payload)
        if kind == b"T":
            count, _ = struct.unpack_from(">IB", payload, 1)
            return Truncate(struct.unpack_from(f">{count}I", payload, 6))
        return None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequest(what="pgoutput message", reason=f"{payload[:1]!r}: {error}") from error


def _row_change(payload: bytes) -> RowChange:
    relation = int.from_bytes(payload[1:5])
    old: Sequence[object] | None = None
    new: Sequence[object] | None = None
    at, is_full = 5, False
    while at < len(payload):
        mark = payload[at]
        values, at = _values(payload, at + 1)
        if mark == 78:  # N
            new = values
        else:  # K or O
            old, is_full = values, mark == 79
    return RowChange(relation, old, new, is_full, payload[0] == 73, len(payload))  # type: ignore[arg-type]


def _values(payload: bytes, at: int) -> tuple[Values, int]:
    (count,) = _SHORT.unpack_from(payload, at)
    at += 2
    values: Values = []
    for _ in range(count):
        mark = payload[at]
        at += 1
        if mark == 116:  # t: text
            (length,) = _LENGTH.unpack_from(payload, at)
            at += 4
            values.append(payload[at : at + length].decode())
            at += length
        else:
            values.append(None if mark == 110 else UNSET)  # n: NULL; u: unchanged
    return values, at


def _relation(payload: bytes) -> Relation:
    relation_id = int.from_bytes(payload[1:5])
    schema, at = _text(payload, 5)
    table, at = _text(payload, at)
    identity = chr(payload[at])
    (count,) = _SHORT.unpack_from(payload, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(payload[at] & 1)
        name, at = _text(payload, at + 1)
        oid, modifier = struct.unpack_from(">Ii", payload, at)
        at += 8
        columns.append(RelationColumn(name, oid, modifier, is_key))
    return Relation(relation_id, schema or "pg_catalog", table, identity, tuple(columns))


def _text(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.index(0, at)
    return payload[at:end].decode(), end + 1
