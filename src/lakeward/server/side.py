# SPDX-License-Identifier: Apache-2.0
"""Which side of a table a request means."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from lakeward.errors import InvalidRequest
from lakeward.model import SideName


async def read_side(
    side: Annotated[
        str | None, Query(description="`lake` or `lake:changelog`; the table's first side if absent")
    ] = None,
) -> SideName | None:
    try:
        return None if side is None else SideName.parse(side)
    except ValueError as error:
        raise InvalidRequest(what="side", reason=str(error)) from error


Side = Annotated[SideName | None, Depends(read_side)]
