# SPDX-License-Identifier: Apache-2.0
"""Change types of a changelog, with the byte each has in a log batch."""

from __future__ import annotations

from enum import IntEnum


class ChangeType(IntEnum):
    APPEND = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4

    @property
    def short(self) -> str:
        return ("+A", "+I", "-U", "+U", "-D")[self]

    @property
    def word(self) -> str:
        """In changelogs of lakes. A row that is appended is inserted."""
        return ("insert", "insert", "update_before", "update_after", "delete")[self]
