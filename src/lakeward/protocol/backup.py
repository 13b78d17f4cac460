# SPDX-License-Identifier: Apache-2.0
"""Backups of a server's folder, asked for over HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MakeBackup:
    """`target`: an absolute path on the server's machine, or `s3://bucket/prefix`."""

    target: str


@dataclass(frozen=True, kw_only=True)
class BackupMade:
    name: str
    files: int
    bytes: int
    took_ms: int
