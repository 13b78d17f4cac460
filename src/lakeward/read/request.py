# SPDX-License-Identifier: Apache-2.0
"""A reader's request, checked as far as possible without the table, and at a cut: a read of the snapshot that shows the
table as it was then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeward.errors import CutNotReady, InvalidRequest
from lakeward.model import LAKE_FIELDS, CutEnds, CutState, SideName, TableInfo, TablePath, to_arrow_schema
from lakeward.protocol.tables import CutStatus
from lakeward.read.plan import AsOf, ReadMode, parse_as_of
from lakeward.read.predicate import Filter


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """`columns` None: all of the user's; `system_columns`: `__bucket`, `__offset`, `__timestamp` too."""

    path: TablePath
    columns: tuple[str, ...] | None = None
    filter: Filter | None = None
    mode: ReadMode = ReadMode.UNION
    as_of: AsOf | None = None
    at_least: str | None = None
    system_columns: bool = False
    lease_s: float = 60.0
    side: SideName | None = None
    """None: the one that is furthest."""

    cut: str | None = None
    is_empty: bool = False
    """A cut at which the table had no rows."""

    as_of_schema: bool = False
    """With the columns that the table had at the moment of `as_of` or the cut, in place of today's."""

    schema_at_ms: int | None = None
    """The moment of a cut."""

    ends: CutEnds | None = None
    """For a cut: the offsets of its snapshot. After a rollback by another engine, a new snapshot may reuse its id."""

    def __post_init__(self) -> None:
        others = {"as_of": self.as_of, "at_least": self.at_least, "mode hot": self.mode is ReadMode.HOT or None}
        named = next((name for name, option_value in others.items() if option_value is not None), None)
        if self.cut is not None and named is not None:
            raise InvalidRequest(what="cut", reason=f"it is a moment of its own; leave {named} out")
        if self.as_of_schema and self.cut is None and self.as_of is None and self.schema_at_ms is None:
            raise InvalidRequest(what="as_of_schema", reason="it takes the columns of a past moment; name as_of or cut")
        if self.as_of is not None and self.mode is ReadMode.HOT:
            raise InvalidRequest(what="as_of", reason="it reads the lake's history; mode hot has none")
        if self.as_of is not None and self.at_least is not None:
            raise InvalidRequest(
                what="at_least", reason="it asks for the newest rows, and as_of for old ones; give one of the two"
            )


def request_of(
    path: str | TablePath,
    *,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
    mode: str = "union",
    as_of: AsOf | None = None,
    at_least: object | None = None,
    system_columns: bool = False,
    lake: str | None = None,
    cut: str | None = None,
    as_of_schema: bool = False,
) -> ReadRequest:
    """A read's options, as people write them: texts are parsed, and a wrong one is an error that names it.

    `mode`: `"union"`, `"lake"` (history alone) or `"hot"` (what the hot store holds). `as_of`: a lake snapshot id or a
    moment, for history. `at_least`: a write's token, to see that write. `filter`: tuples such as `[("id", "=", 5)]`;
    files that cannot have such rows are not opened. `system_columns`: with `__bucket`, `__offset`, `__timestamp`.
    `lake`: which of the table's lakes is read, where it has several; the one that is furthest if None.
    `cut`: the table as it was at that cut (`lakeward cut create`), together with every other table of it.
    `as_of_schema`: with the names, types and order of columns of that moment, in place of today's."""
    if isinstance(columns, str):
        raise InvalidRequest(what=f"columns {columns!r}", reason="give a list of names")
    return ReadRequest(
        path=path if isinstance(path, TablePath) else TablePath.parse(path),
        columns=None if columns is None else tuple(columns),
        filter=filter,
        mode=ReadMode.parse(mode),
        as_of=parse_as_of(as_of) if isinstance(as_of, str) else as_of,
        at_least=None if at_least is None else str(at_least),
        system_columns=system_columns,
        side=None if lake is None else _side(lake),
        cut=cut,
        as_of_schema=as_of_schema,
    )


def _side(lake: str) -> SideName:
    try:
        return SideName.parse(lake)
    except ValueError as error:
        raise InvalidRequest(what=f"lake {lake!r}", reason=str(error)) from error


def check_columns(request: ReadRequest, table: TableInfo) -> None:
    """Raises `InvalidRequest` for a column that the table does not have, or that is named twice."""
    named = request.columns or ()
    for at, name in enumerate(named):
        if name not in table.schema.names:
            raise InvalidRequest(
                what=f"column {name!r} of {table.path}", reason=f"there are {', '.join(table.schema.names)}"
            )
        if name in named[:at]:
            raise InvalidRequest(what=f"column {name!r} of {table.path}", reason="it is named twice")


def filter_schema(table: TableInfo) -> pa.Schema:
    """Columns that a filter may name: the user's and the system's."""
    return pa.schema([*to_arrow_schema(table.schema), *LAKE_FIELDS])


def at_cut(request: ReadRequest, status: CutStatus) -> ReadRequest:
    """The same read, of a snapshot that is named. Raises `CutNotReady`, `InvalidRequest`."""
    cut, table = status.cut, status.cut.find(request.path)
    if table is None:
        tables = ", ".join(str(t.path) for t in cut.tables)
        raise InvalidRequest(what=f"cut {cut.name}", reason=f"{request.path} is not in it; it is of {tables}")
    if status.state is not CutState.READY:
        raise CutNotReady(cut=cut.name, state=str(status.state), reason="; ".join(status.notes))
    sides = [s for s in table.sides if s.is_readable and request.side in (None, s.name)]
    if not sides:
        lost = [s.lost for s in table.sides if s.name == request.side]
        why = lost[0] if lost else "it was not there when the cut was made"
        raise InvalidRequest(what=f"cut {cut.name}", reason=f"{request.path} in lake {request.side}: {why}")
    chosen = sides[0]
    named = replace(request, cut=None, side=chosen.name, as_of=chosen.snapshot_id, schema_at_ms=cut.created_at_ms)
    return replace(named, is_empty=chosen.is_empty, ends=table.ends)
