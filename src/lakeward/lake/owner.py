# SPDX-License-Identifier: Apache-2.0
"""Whose table is it that is there already?"""

from __future__ import annotations

from lakeward.errors import LakeForeign, LakeNotEmpty
from lakeward.model.ids import TableId
from lakeward.model.table import TableInfo


def check_owner(table: TableInfo, owner: TableId | str | None, *, has_snapshots: bool, adopt: bool) -> None:
    """`owner`: as its newest commit of ours says. Raises `LakeNotEmpty`, `LakeForeign`."""
    if not has_snapshots or owner == table.table_id:
        return
    if not adopt:
        raise LakeNotEmpty(table=str(table.path))
    if owner is not None:
        raise LakeForeign(table=str(table.path), found=owner, expected=table.table_id)
