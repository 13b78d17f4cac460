# SPDX-License-Identifier: Apache-2.0
"""Small files: what compaction has to do, and whether it may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

MANY_FILES, MANY_DEBT = 5_000, 500
WHY = "Each round writes at least a file for each bucket, and nobody merges them."
AUTO, ALL = "table.datalake.auto-compaction", "table.datalake.auto-maintenance"


def check_files(facts: Facts) -> Iterator[Diagnosis]:
    yield from _server(facts)
    for table in facts.tiered:
        path, files = str(table.path), (table.lake_files or 0) + (table.lake_delete_files or 0)
        info = facts.tables.get(path)
        off = None if info is None else _switched_off(info.descriptor.properties)
        if files > MANY_FILES or table.debt_files > MANY_DEBT:
            yield Diagnosis(
                check="files",
                level=Level.WRONG,
                about=path,
                figure=f"{files:,} files, {table.debt_files:,} of them to merge",
                why="Planning a scan costs more than reading above some thousand files.",
                mend=f"lakeward table alter {path} --set {off}=true" if off else f"lakeward maintain {path}",
            )
        elif off and info is not None and table.lake_files is not None:
            day = round(86_400_000 / max(1, table.freshness_ms) * info.descriptor.bucket_count)
            yield Diagnosis(
                check="files",
                level=Level.SOON,
                about=path,
                figure=f"compaction is off; up to {day:,} new files a day",
                why=WHY,
                mend=f"lakeward table alter {path} --set {off}=true, unless another engine compacts it",
            )


def _server(facts: Facts) -> Iterator[Diagnosis]:
    off = _switched_off(facts.server.table_defaults)
    live = [j for j in facts.status.jobs if j.live and j.slots]
    if off and facts.tiered:
        yield _files_finding(f"compaction is off for every table: {off} = false", f"{off} = true in lakeward.toml")
    elif live and facts.tiered:
        from lakeward.coordinator.kinds import KINDS

        jobs, live_kinds = ", ".join(str(j.name) for j in live), {kind for j in live for kind in j.kinds}
        for kind in KINDS:
            if kind.is_upkeep and kind.name not in live_kinds:
                figure = f"no live job does the work {kind.name}: {jobs} cannot"
                yield _files_finding(figure, "start the jobs again from this version", kind.if_undone)


def _files_finding(figure: str, mend: str, why: str = WHY) -> Diagnosis:
    return Diagnosis(check="files", level=Level.SOON, about="server", figure=figure, why=why, mend=mend)


def _switched_off(given: Mapping[str, str]) -> str | None:
    return next((key for key in (ALL, AUTO) if given.get(key, "true").lower() == "false"), None)
