# SPDX-License-Identifier: Apache-2.0
"""Backups of a server's folder, asked for over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class MakeBackup:
    """`target`: an absolute path on the server's machine, or `s3://bucket/prefix`."""

    target: str
    with_lake: bool = False
    """Also the files of lakes in folders of the server's machine."""


@dataclass(frozen=True, kw_only=True)
class BackupMade:
    name: str
    files: int
    bytes: int
    took_ms: int
    lakes: dict[str, int] = field(default_factory=dict)
    """Lakes that are in it -> bytes of their files."""

    lakes_left_out: dict[str, str] = field(default_factory=dict)
    """Lakes that are not -> where their tables are."""
