# SPDX-License-Identifier: Apache-2.0
"""Every check there is: a check is a file of `checks` and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakeward.cli.doctor.checks import (
    backups,
    blocked,
    buckets,
    clocks,
    disk,
    files,
    freshness,
    jobs,
    lakes,
    limits,
    live,
    pools,
    retention,
    security,
    storage,
    tiny,
    unused,
    versions,
)
from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

CHECKS: tuple[Callable[[Facts], Iterable[Diagnosis]], ...] = (
    freshness.check,
    jobs.check,
    pools.check,
    blocked.check,
    lakes.check,
    storage.check,
    retention.check,
    disk.check,
    limits.check,
    live.check,
    security.check,
    clocks.check,
    versions.check,
    files.check,
    buckets.check,
    tiny.check,
    unused.check,
    backups.check,
)


def examine(facts: Facts, table: str | None = None) -> list[Diagnosis]:
    """Diagnoses, most severe first. `table`: only those about this table."""
    found = [f for check in CHECKS for f in check(facts) if table is None or f.about == table]
    return sorted(found, key=lambda f: f.level is not Level.WRONG)
