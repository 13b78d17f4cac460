# SPDX-License-Identifier: Apache-2.0
"""Ids, each with a type of its own so that they cannot be mixed up. Each checks itself when it is made: ids come from
peers and out of lakes, and folders, file names, prefixes and queries are made of them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import ClassVar, NewType, Self

from lakeward.errors import InvalidRequest


class Id(str):
    """Text without anything that means something to a path, a URL, a pattern or a terminal."""

    __slots__ = ()
    what: ClassVar[str] = "id"
    shape: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
    allowed: ClassVar[str] = "up to 128 letters, digits, - and _, a letter or digit first"

    def __new__(cls, text: str) -> Self:
        """Raises `InvalidRequest`."""
        if cls.shape.fullmatch(text) is None:
            raise InvalidRequest(what=f"{cls.what} {text[:40]!r}", reason=f"allowed: {cls.allowed}")
        return super().__new__(cls, text)


class _OptionalId(Id):
    """Empty: none."""

    __slots__ = ()
    shape: ClassVar[re.Pattern[str]] = re.compile(rf"(?:{Id.shape.pattern})?")
    allowed: ClassVar[str] = f"nothing, or {Id.allowed}"


class TableId(Id):
    """Names one life of a table: drop and re-create gives another. A UUID here, Fluss's number as text there."""

    __slots__ = ()
    what = "table id"


class RoundId(_OptionalId):
    __slots__ = ()
    what = "round id"


class InstanceId(_OptionalId):
    __slots__ = ()
    what = "instance id"


class LeaseId(_OptionalId):
    __slots__ = ()
    what = "lease id"


class SnapshotId(_OptionalId):
    """A lake snapshot's id as the format spells it."""

    __slots__ = ()
    what = "snapshot id"
    shape = re.compile(rf"(?:-?{Id.shape.pattern})?")


class JobName(Id):
    """Chosen by people."""

    __slots__ = ()
    what = "job name"
    shape = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,128}")
    allowed = "1 to 128 characters, none of them a control sign"


Epoch = NewType("Epoch", int)
NO_EPOCH = Epoch(0)
"""Before the first time a table is queued."""

_draw: Callable[[], uuid.UUID] = uuid.uuid4


def draw_ids_from(source: Callable[[], uuid.UUID]) -> Callable[[], uuid.UUID]:
    """All new ids come from `source`, until told otherwise; returns the source before. Tests that must repeat
    themselves need it: a table's id breaks ties and spreads back-offs."""
    global _draw
    before, _draw = _draw, source
    return before


def new_table_id() -> TableId:
    return TableId(str(_draw()))


def new_round_id() -> RoundId:
    return RoundId(str(_draw()))


def new_instance_id() -> InstanceId:
    return InstanceId(str(_draw()))


def new_lease_id() -> LeaseId:
    return LeaseId(str(_draw()))


def new_folder_name() -> str:
    """A new name for a table's folder of files. Always drawn here, also when the table's id came from elsewhere."""
    return str(_draw())
