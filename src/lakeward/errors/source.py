# SPDX-License-Identifier: Apache-2.0
"""Errors of sources: of the process that ingests, and of the system that it reads from."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class SourceError(LakewardError):
    code = "source"
    http_status = 409


class SourceFenced(SourceError):
    """Another process ingests for this source."""

    code = "source-fenced"
    template = "source {source}: another process opened it after this one (epoch {current}, this one has {epoch})"
    source: str
    epoch: int
    current: int


class SourceOutOfStep(SourceError):
    code = "source-out-of-step"
    template = "source {source}: group {got} came, {expected} was due; start the ingest process again"
    source: str
    got: int
    expected: int


class SourceGroupLost(SourceError):
    """The server restarted before the group was committed; nothing of it is stored."""

    code = "source-group-lost"
    retryable = True
    template = "source {source}: file {file} of the group is not on the server as it was sent; send the group again"
    source: str
    file: str


class SourceStopped(SourceError):
    """Going on would make the table wrong, so a person decides."""

    code = "source-stopped"
    template = "source {source} stops at {where}: {reason}. {advice}"
    source: str
    where: str
    reason: str
    advice: str


class SourceUnavailable(SourceError):
    code = "source-unavailable"
    http_status = 503
    retryable = True
    template = "source {source}: {origin} cannot be reached: {reason}"
    source: str
    origin: str
    reason: str
