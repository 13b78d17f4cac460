# SPDX-License-Identifier: Apache-2.0
"""Lakes: do they answer, can they be written, orphan files, S3 settings of Spark and Python, the `live` warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted, size
from lakeward.protocol.facts import LiveFacts

MOST_ORPHAN_BYTES = 100_000_000


def check_lakes(facts: Facts) -> Iterator[Diagnosis]:
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


_PAIRS = {
    "s3.endpoint": "spark.hadoop.fs.s3a.endpoint",
    "s3.region": "spark.hadoop.fs.s3a.endpoint.region",
    "s3.access-key-id": "spark.hadoop.fs.s3a.access.key",
}
_VIRTUAL, _PATH_STYLE = "s3.force-virtual-addressing", "spark.hadoop.fs.s3a.path.style.access"


def check_storage(facts: Facts) -> Iterator[Diagnosis]:
    lake, spark = facts.lake_options, facts.here.spark_settings
    for ours, sparks in _PAIRS.items():
        if lake.get(ours) and spark.get(sparks) and _plain(lake[ours]) != _plain(spark[sparks]):
            yield _storage_finding(
                f"{ours} is {_shown(ours, lake[ours])}, {sparks} is {_shown(sparks, spark[sparks])}", sparks, ours
            )
    has_own_address = lake.get("s3.endpoint") and spark.get(_PAIRS["s3.endpoint"])
    is_virtual, is_path = _is_true(lake.get(_VIRTUAL)), _is_true(spark.get(_PATH_STYLE))
    if has_own_address and is_virtual == is_path:
        figure = f"{_VIRTUAL} is {str(is_virtual).lower()}, {_PATH_STYLE} is {str(is_path).lower()}"
        yield _storage_finding(figure, _PATH_STYLE, _VIRTUAL)


def _storage_finding(figure: str, sparks: str, ours: str) -> Diagnosis:
    return Diagnosis(
        check="storage",
        level=Level.WRONG,
        about="lake",
        figure=figure,
        why="Rounds write through Python and Spark reads through Hadoop: one of them looks elsewhere.",
        mend=f"the same in spark-defaults.conf ({sparks}) and lakeward.toml (datalake.iceberg.{ours})",
    )


def _plain(address: str) -> str:
    return address.lower().removeprefix("http://").removeprefix("https://").rstrip("/")


def _shown(key: str, value: str) -> str:
    return f"{value[:4]}…" if "access" in key else value


def _is_true(value: str | None) -> bool:
    return (value or "").lower() == "true"


FULL, ALMOST = 0.98, 0.8


def check_live(facts: Facts) -> Iterator[Diagnosis]:
    if facts.server.live is not None:
        yield from examine_live(facts.server.live, {str(t.path): t.waiting_rows for t in facts.status.tables})


def examine_live(
    live: LiveFacts, waiting: Mapping[str, int], about: str = "server", cluster: str = ""
) -> Iterator[Diagnosis]:
    """`waiting`: records that each table's lake lacks. `cluster`: what commands about a Fluss cluster add."""
    for path in (p for p in map(str, live.cut_short) if waiting.get(p)):
        yield Diagnosis(
            check="live",
            level=Level.WRONG,
            about=path,
            figure=f"{counted(waiting[path], 'row')} wait for the lake, more than warehouse live shows",
            why="Engines that read it there see an earlier moment.",
            mend=f"lakeward tier-now {path}{cluster}, or more live.max-tail-rows and live.max-tail-bytes",
        )
    if live.bytes > ALMOST * live.max_bytes:
        yield Diagnosis(
            check="live",
            level=Level.WRONG if live.bytes > FULL * live.max_bytes else Level.SOON,
            about=about,
            figure=f"files of live answers take {size(live.bytes)} of {size(live.max_bytes)} (live.max-bytes)",
            why="At the limit loads of tables with new rows are refused.",
            mend="a higher live.max-bytes, or a shorter live.keep",
        )
    if live.overdue:
        yield Diagnosis(
            check="live",
            level=Level.SOON,
            about=about,
            figure=f"files of {counted(live.overdue, 'live answer')} are past live.keep and still in the lake",
            why="They take space, and count for live.max-bytes.",
            mend=f"the {about}'s log says which lake does not answer",
        )
