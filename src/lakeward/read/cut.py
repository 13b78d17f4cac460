# SPDX-License-Identifier: Apache-2.0
"""A read at a cut is a read of the snapshot that shows the table as it was then."""

from __future__ import annotations

from dataclasses import replace

from lakeward.errors import CutNotReady, InvalidRequest
from lakeward.model import CutState
from lakeward.protocol.tables import CutStatus
from lakeward.read.request import ReadRequest


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
    named = replace(request, cut=None, side=chosen.name, as_of=chosen.snapshot_id)
    return replace(named, is_empty=chosen.is_empty, ends=table.ends)
