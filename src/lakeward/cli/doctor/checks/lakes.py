# SPDX-License-Identifier: Apache-2.0
"""The lake: does it answer, may we write and delete there, what lies there for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted, size

MOST_ORPHAN_BYTES = 100_000_000


def check(facts: Facts) -> Iterator[Diagnosis]:
    refusing = {name: words for name, words in facts.status.lakes.items() if words}
    if facts.probe is not None:
        refusing |= {name: words for name, words in facts.probe.catalogs.items() if words}
    for name, words in sorted(refusing.items()):
        yield Diagnosis(
            check="lakes",
            level=Level.WRONG,
            about=f"lake {name}",
            figure="its catalog does not answer",
            why=words,
            mend=f"mend datalake.{name}.* (lakes.{name}.*) in lakeward.toml; rounds go on by themselves",
        )
    for probe in facts.probe.tables if facts.probe is not None else ():
        if probe.error is not None:
            yield Diagnosis(
                check="lakes",
                level=Level.WRONG,
                about=str(probe.path),
                figure="a probe file could not be written and deleted",
                why=probe.error,
                mend="give the server and its jobs the right to write, list and delete under the table's location",
            )
        if probe.orphan_bytes > MOST_ORPHAN_BYTES:
            yield Diagnosis(
                check="lakes",
                level=Level.SOON,
                about=str(probe.path),
                figure=f"{size(probe.orphan_bytes)} in {counted(probe.orphan_files, 'file')} that nothing references",
                why="They are older than any round that could still commit them, and are paid for.",
                mend="the server's log says what keeps orphan removal from them (every coordinator.orphan.interval)",
            )
