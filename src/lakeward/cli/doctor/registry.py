# SPDX-License-Identifier: Apache-2.0
"""Every check there is: a check is a file of `checks` and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakeward.cli.doctor.checks import files, freshness, jobs, lakes, machine, tables
from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

CHECKS: tuple[Callable[[Facts], Iterable[Diagnosis]], ...] = (
    freshness.check_freshness,
    jobs.check_jobs,
    jobs.check_pools,
    tables.check_blocked,
    lakes.check_lakes,
    lakes.check_storage,
    tables.check_retention,
    machine.check_disk,
    machine.check_limits,
    lakes.check_live,
    machine.check_security,
    machine.check_clocks,
    machine.check_versions,
    files.check_files,
    tables.check_buckets,
    tables.check_tiny,
    tables.check_unused,
    machine.check_backups,
)


def examine(facts: Facts, table: str | None = None) -> list[Diagnosis]:
    """Diagnoses, most severe first. `table`: only those about this table."""
    found = [f for check in CHECKS for f in check(facts) if table is None or f.about == table]
    return sorted(found, key=lambda f: f.level is not Level.WRONG)
