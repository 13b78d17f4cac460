# SPDX-License-Identifier: Apache-2.0
"""Messages that travel over Arrow Flight beside the batches: put commands, batch headers, acknowledgements, tickets,
actions. All are JSON in UTF-8. A ticket is the bytes that `do_get` takes; `ticket_text` is its base64 form for read
plans."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from lakeward.errors import InvalidRequest
from lakeward.model import Bucket, OffsetMap, OffsetRange, TableId, TableInfo, TablePath
from lakeward.protocol.codec import decode, encode, load_json

T = TypeVar("T")

MAX_UNDER_WAY = 32
"""Batches of one writer that may be sent before the first of them is acknowledged, all to one bucket where it comes to
that. The server remembers as many, so that each of them can be sent again after a broken connection. Enough to keep a
server busy while acknowledgements travel; acknowledgements of so many fit in one gRPC window, so neither side ever
waits for the other to read."""


class PutKind(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class PutCommand:
    """Opens a put stream. `columns` names those of a partial upsert; None: all of the table's.

    `schema_id` is the schema that the batches were made for, in which names are found; `writer` with the headers'
    sequences makes retries exactly-once."""

    table: TablePath
    table_id: TableId
    kind: PutKind
    schema_id: int
    writer: int | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class BatchHeader:
    """Rides in the app_metadata of each batch of a put stream. `age_ms`: how long ago this batch was first sent,
    when it is sent again."""

    bucket: Bucket
    sequence: int | None = None
    age_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class PutAck:
    """One per batch, in order: the offsets it was given (on PK tables those of its changelog). With an `error`, in its
    wire form, it says that this batch and those behind it are not acknowledged; nothing comes after it."""

    start: int
    stop: int
    error: dict[str, Any] | None = None


class Read(StrEnum):
    LOG = "log"
    TAIL = "tail"
    SNAPSHOT = "snapshot"
    LOOKUP = "lookup"


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A read that `do_get` serves. `schema_id` is the reader's schema, in which `columns` and the names of keys are
    looked up. `width`, the number of columns of that schema, is for servers before 0.2; newer ones ignore it.

    log: `bucket`, `range`. tail: `offsets` (other buckets are read from their start), `wait_ms`; each batch names its
    bucket in app_metadata; the stream ends when all buckets were read to their ends, after at most `wait_ms` without a
    row. snapshot: `bucket`, `snapshot_id`, `log_offset`. lookup: `bucket`, `keys` (base64 of an Arrow stream of key
    columns)."""

    kind: Read
    table: TablePath
    table_id: TableId
    schema_id: int
    width: int = 0
    columns: tuple[str, ...] | None = None
    bucket: Bucket | None = None
    range: OffsetRange | None = None
    offsets: OffsetMap | None = None
    wait_ms: int = 0
    snapshot_id: str | None = None
    log_offset: int = 0
    keys: str | None = None

    @classmethod
    def of(cls, kind: Read, table: TableInfo, columns: Sequence[str] | None = None, **wanted: Any) -> Ticket:
        """For a reader that knows the table as it is in `table`."""
        return cls(
            kind=kind,
            table=table.path,
            table_id=table.table_id,
            schema_id=table.schema.schema_id,
            width=len(table.schema.columns),
            columns=None if columns is None else tuple(columns),
            **wanted,
        )


def log_ticket(table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None) -> Ticket:
    return Ticket.of(Read.LOG, table, columns, bucket=bucket, range=OffsetRange(start, stop))


_to_text = json.JSONEncoder(separators=(",", ":")).encode
"""Made once: `json.dumps` makes one for each call that asks for no spaces."""


def to_bytes(message: Any) -> bytes:
    return _to_text(encode(message)).encode()


def from_bytes(kind: type[T], raw: bytes) -> T:
    """Raises `InvalidRequest`: peers send anything."""
    body = load_json(raw, kind.__name__)
    if not isinstance(body, Mapping):
        raise InvalidRequest(what=kind.__name__, reason="expected a JSON object")
    return decode(kind, dict(body))


def ticket_text(ticket: Ticket) -> str:
    return base64.b64encode(to_bytes(ticket)).decode()


def ticket_from_text(text: str) -> bytes:
    return base64.b64decode(text.encode())


MOST_SNAPSHOTS = 64
"""KV snapshots in one call: well below a second on an idle machine, far below a call's limit on a busy one."""


class Act(StrEnum):
    """Actions. Each takes a JSON object with `table` (and what is named here) and answers with one JSON object."""

    LOAD_TABLE = "load-table"
    SCHEMAS = "schemas"
    """`schemas`: every one that the table had, oldest first, with the moment since when."""

    LIST_TABLES = "list-tables"
    FREEZE = "freeze"
    BOUNDS = "bounds"
    OFFSET_AT = "offset-at"
    """`bucket`, `at_ms` -> `offset`: the first at or after that time."""

    TAKE_SNAPSHOT = "take-snapshot"
    """`bucket`, `holder` -> `snapshot` or null."""

    TAKE_SNAPSHOTS = "take-snapshots"
    """`buckets` (`MOST_SNAPSHOTS` at most), `holder` -> `snapshots`, without buckets that never had a row."""

    RELEASE_SNAPSHOTS = "release-snapshots"
    """`holder`."""

    PARTITIONS = "partitions"


@dataclass(frozen=True, kw_only=True)
class ActionRequest:
    """`table_id` None: whatever life of the table there is now."""

    table: TablePath | None = None
    table_id: TableId | None = None
    bucket: Bucket | None = None
    buckets: tuple[Bucket, ...] = ()
    at_ms: int = 0
    holder: str = ""
