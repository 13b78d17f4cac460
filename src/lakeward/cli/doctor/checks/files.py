# SPDX-License-Identifier: Apache-2.0
"""Small files: what compaction has to do, and whether it may."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

MANY_FILES, MANY_DEBT = 5_000, 500
AUTO = "table.datalake.auto-compaction"


def check(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.tiered:
        path, files = str(table.path), (table.lake_files or 0) + (table.lake_delete_files or 0)
        is_off = (facts.property_of(path, AUTO) or "true").lower() == "false"
        if files > MANY_FILES or table.debt_files > MANY_DEBT:
            yield Diagnosis(
                check="files",
                level=Level.WRONG,
                about=path,
                figure=f"{files:,} files, {table.debt_files:,} of them to merge",
                why="Planning a scan costs more than reading above some thousand files.",
                mend=f"lakeward table alter {path} --set {AUTO}=true" if is_off else f"lakeward maintain {path}",
            )
        elif is_off and table.lake_files is not None:
            info = facts.tables[path]
            day = round(86_400_000 / max(1, table.freshness_ms) * info.descriptor.bucket_count)
            yield Diagnosis(
                check="files",
                level=Level.SOON,
                about=path,
                figure=f"compaction is off; up to {day:,} new files a day",
                why="Each round writes at least a file for each bucket, and nobody merges them.",
                mend=f"lakeward table alter {path} --set {AUTO}=true, unless another engine compacts it",
            )
