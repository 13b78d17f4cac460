# SPDX-License-Identifier: Apache-2.0
"""Names of our files, and the two layouts of a lake table: with the system columns, or *clean*, with the user's columns
alone, as Fluss creates them since 1.0.

Each name has its round after its kind: `data-lw-ROUND-...`, `manifest-list-lw-ROUND-...`. Our file of a clean log table
has its bucket in its name, `data-lw-ROUND-bNUMBER-...`, and its first and last offset as the sequence numbers of its
manifest entry. Paimon itself counts the rows of a bucket this way, from 0 on: a later writer continues with the next
offset. Rows of a clean PK table have no offsets: the highest sequence number of a key counts.
"""

from __future__ import annotations

import re
from typing import Any

from lakeward.lake.core.columns import SYSTEM
from lakeward.model import OffsetRange, RoundId

_ADDRESS = re.compile(r"-lw-.+-b(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+\.[a-z]+$")


def is_clean(lake_table: Any) -> bool:
    return SYSTEM.isdisjoint(f.name for f in lake_table.table_schema.fields)


def data_prefix(lake_table: Any, round_id: RoundId, bucket: int | None) -> str:
    """Prefix of the names of data files that a round or a rewrite creates. None: the file does not record its
    bucket."""
    prefix = name_of("data", round_id)
    is_addressed = is_clean(lake_table) and not lake_table.table_schema.primary_keys
    return f"{prefix}b{bucket}-" if is_addressed and bucket is not None else prefix


def find_address(file: Any) -> tuple[int, OffsetRange] | None:
    """Returns bucket and offsets of a clean log table's file; None if it is not ours."""
    named = _ADDRESS.search(file.file_name)
    if named is None:
        return None
    return int(named[1]), OffsetRange(int(file.min_sequence_number), int(file.max_sequence_number) + 1)


MARK = "-lw-"


def round_prefix(folder: str, round_id: RoundId) -> str:
    """Returns the prefix for an intent; `has_prefix` recognises a file by it."""
    return f"{folder}/lw-{round_id}-"


def name_of(kind: str, round_id: RoundId) -> str:
    return f"{kind}{MARK}{round_id}-"


def has_prefix(name: str, prefix: str) -> bool:
    return f"-{prefix.rpartition('/')[2]}" in name


def is_ours(name: str) -> bool:
    return MARK in name
