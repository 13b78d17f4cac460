# SPDX-License-Identifier: Apache-2.0
"""Versions that do not fit: this machine's and the server's."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts


def check(facts: Facts) -> Iterator[Diagnosis]:
    here, server = facts.here, facts.server
    if here.protocol != server.protocol:
        yield _finding(Level.WRONG, f"protocol {here.protocol} here, {server.protocol} there", server.version)
    elif here.version != server.version:
        yield _finding(Level.SOON, f"lakeward {here.version} here, {server.version} there", server.version)


def _finding(level: Level, figure: str, version: str) -> Diagnosis:
    return Diagnosis(
        check="versions",
        level=level,
        about="server",
        figure=figure,
        why="What one of them has learnt the other does not know.",
        mend=f"pip install 'lakeward[all]=={version}'",
    )
