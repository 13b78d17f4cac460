# SPDX-License-Identifier: Apache-2.0
"""What a lake format can do, as data: callers ask here and never look at the format's name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DeleteEncoding(StrEnum):
    NONE = "none"
    POSITIONS = "positions"
    """Rows are named by file and position: needs `__prev_offset`."""

    EQUALITY = "equality"
    """Rows are named by key: for changelogs without `__prev_offset`."""

    NATIVE = "native"
    """The format merges by key itself (Paimon, Hudi): the writer is handed the changes."""


@dataclass(frozen=True, kw_only=True)
class LakeCapabilities:
    upserts: bool
    delete_encodings: frozenset[DeleteEncoding]
    one_writer_per_bucket: bool
    """A bucket's range may not be cut into sub-splits (Paimon's sequence numbers)."""

    conditional_commit: bool
    """A commit can demand an exact head. Without it a zombie cannot be fenced, and the plugin is refused."""

    tags: bool
    add_column: bool
    partitions: bool
    composite_bucket_key: bool
    snapshot_expiry: bool
    system_columns: bool = True
    """`__bucket`, `__offset`, `__timestamp` are stored with each row."""
