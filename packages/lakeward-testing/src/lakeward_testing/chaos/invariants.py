# SPDX-License-Identifier: Apache-2.0
"""The invariants of design.md 10, each judged from what the lab gathered: verify, the producers' records, reads, files,
the watch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakeward.client import Client, connect
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval
from lakeward.model import SystemClock, TablePath
from lakeward.spi import LakeMaintenance, load_lake
from lakeward.verify import Certificate, verify_table
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.chaos.reader import RecordFolder, check_keys, check_log, check_offsets
from lakeward_testing.chaos.record import Record
from lakeward_testing.chaos.spells import Spells
from lakeward_testing.chaos.tables import LOG, PK
from lakeward_testing.chaos.watch import Watched

SHOWN = 5
LAKE_TROUBLE = ("read-only:lake", "catalog:500", "catalog:409", "catalog:time-out")
WRITE_TROUBLE = (
    "kill:server",
    "pause:server",
    "step:server",
    "disk-full",
    "full-disk:server",
    "descriptors:server",
    "hostile:server",
    "cut:clients",
    "cut:flight",
    "lose-answer:clients",
)
MEMORY_SHARE = 1.5
QUIET_S = 2.0
"""Producers get that long around a fault that is theirs before their silence counts against the lake's."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """`windows`: (from, to, kind:target) of the faults, in wall time."""

    folder: Path
    url: str
    watched: Watched
    windows: tuple[tuple[float, float, str], ...]
    recovery_s: float
    journal: RunJournal
    spells: Spells | None = None
    broken: Sequence[str] = ()
    """Processes that ended by themselves and should not have."""

    memory: tuple[int, int] | None = None
    """The most that the server held before anything was hurt, and since; None: no hostile peer came."""


@dataclass(frozen=True, kw_only=True)
class InvariantVerdict:
    """`held` None: this run could not tell, `how` says why."""

    number: int
    words: str
    held: bool | None
    how: str
    wrong: tuple[str, ...] = ()


def judge(evidence: Evidence, finish: Callable[[], None]) -> tuple[list[InvariantVerdict], dict[str, float]]:
    """`finish` ends readers and jobs, after the last checks that need them."""
    records = RecordFolder(evidence.folder / "records")
    log, keys = records.load("log"), records.load("pk")
    finish()
    with connect(evidence.url) as client:
        certificates = {path: verify_table(client.plugin, TablePath.parse(path), deep=True) for path in (LOG, PK)}
        final = _final_reads(client, log, keys)
        files = _files(client)
    caught_up = evidence.recovery_s < float("inf")
    stuck = [*evidence.broken, *([] if caught_up else ["the lake did not catch up"])]
    reads = _reads(evidence.folder / "reads.jsonl")
    seen = [w for r in reads for w in r["wrong"]]
    verdicts = [
        _verdict(
            1,
            "no reader sees part of a round",
            [w for w in seen if "bucket" in w],
            f"{_good(reads)} reads beside the faults",
        ),
        _verdict(
            2,
            "every row of the log table is in the lake exactly once",
            [*final["log"], *_told(certificates[LOG])],
            "verify --deep",
        ),
        _verdict(
            3,
            "the PK table's lake state is its changelog, folded",
            [*final["pk"], *_told(certificates[PK])],
            "verify --deep",
        ),
        _leases(evidence.journal, [*final["log"], *final["pk"]]),
        _epochs(evidence),
        _verdict(
            6, "acknowledged writes survive", [*final["union"], *seen], f"{_acked(log, keys)} acknowledged changes"
        ),
        _verdict(
            7, "no segment goes before the lake has it", _told(certificates[LOG]), "verify, with a TTL of seconds"
        ),
        _verdict(
            8, "no referenced file goes, every other one does", files, "references and folder after orphan removal"
        ),
        _alone(evidence.spells, evidence.broken),
        _writes_go_on(evidence, [*log.values(), *keys.values()]),
    ]
    verdicts.append(_verdict(11, "it recovers", stuck, f"{evidence.recovery_s:.1f} s"))
    if evidence.memory is not None and all(evidence.memory):
        verdicts.append(_memory(*evidence.memory))
    return verdicts, _figures(evidence, reads, log, keys, certificates)


def _memory(quiet: int, peak: int) -> InvariantVerdict:
    words = f"{peak >> 20} MB at the most, {quiet >> 20} MB before"
    wrong = [words] if peak > MEMORY_SHARE * quiet else []
    return _verdict(12, "hostile peers cost the server little memory", wrong, words)


def _verdict(number: int, words: str, wrong: list[str], how: str) -> InvariantVerdict:
    return InvariantVerdict(number=number, words=words, held=not wrong, how=how, wrong=tuple(wrong[:SHOWN]))


def _told(certificate: Certificate) -> list[str]:
    return [
        f"{certificate.table}: {f.kind} {f.words} {list(f.offsets)} {list(f.files)[:2]}"
        for f in certificate.all_findings
    ]


def _final_reads(client: Client, log: dict[int, Record], keys: dict[int, Record]) -> dict[str, list[str]]:
    """With all at rest the lake alone must show everything, and so must a union read."""
    lake = client.read(LOG, mode="lake", system_columns=True)
    lake_bound, lake_rows = lake.bound, lake.to_table()
    union = [
        *check_log(client.read(LOG).to_table(), log, log),
        *check_keys(client.read(PK).to_table(), keys, keys),
    ]
    return {
        "log": [*check_log(lake_rows, log, log), *check_offsets(lake_rows, lake_bound.lake_offsets)],
        "pk": check_keys(client.read(PK, mode="lake").to_table(), keys, keys),
        "union": union,
    }


def _files(client: Client) -> list[str]:
    """Every referenced file is there; after a sweep nothing else of ours is."""
    wrong = []
    for path in (LOG, PK):
        table = client.show_table(path)
        name, options = client.plugin.lake_options(table)
        storage = load_lake(name, options)
        upkeep = storage.open_maintenance(table)
        wrong += [f"{path}: {p} is referenced and gone" for p in _missing(upkeep)]
        removal = OrphanRemoval(
            storage, table, clock=SystemClock(), options=OrphanOptions(grace_ms=0), hold=_idle, adopt=lambda _base: None
        )
        removal.sweep()
        loose = _loose(upkeep)
        wrong += [f"{path}: {len(loose)} files that nothing references stay: {sorted(loose)[:2]}"] if loose else []
        wrong += [f"{path}: {p} is referenced and gone, after orphan removal" for p in _missing(upkeep)]
    return wrong


def _loose(upkeep: LakeMaintenance) -> set[str]:
    """Asked twice, as the server may expire a snapshot between a look at the folder and one at its references."""
    found = {f.path for f in upkeep.list_files()} - upkeep.references()
    return found & {f.path for f in upkeep.list_files()} if found else found


def _missing(upkeep: LakeMaintenance) -> list[str]:
    """Asked twice: the server is there, and may expire a snapshot between a look at its files and one at the folder."""
    gone = {p for p in upkeep.references() if not Path(p.removeprefix("file://")).exists()}
    return sorted(gone & upkeep.references())[:SHOWN] if gone else []


@contextmanager
def _idle() -> Iterator[bool]:
    """The jobs have left: nobody holds a table."""
    yield True


def _leases(journal: RunJournal, wrong_rows: list[str]) -> InvariantVerdict:
    """Commits by jobs whose table had been handed out again: refused, or in time and then the other's turn to adopt;
    never twice.
    """
    stale = journal.stale()
    landed = sum(1 for c in stale if c.accepted)
    how = (
        f"{len(stale)} lake commits without a lease ({landed} won the race), {journal.checks_refused} of "
        f"{journal.checks} checks refused"
    )
    words = "a job without a lease changes nothing"
    if not stale and not journal.checks_refused:
        return InvariantVerdict(number=4, words=words, held=None, how="no job came to commit without a lease")
    return _verdict(4, words, [*journal.wrong_commits(), *wrong_rows], how)


def _epochs(evidence: Evidence) -> InvariantVerdict:
    """From outside by samples, and in every hand-out and every lake commit that passed, restarts included."""
    journal, watched = evidence.journal, evidence.watched
    restarts = len({h.coordinator_epoch for h in journal.hand_outs}) - 1
    how = (
        f"{watched.samples} samples, {len(journal.hand_outs)} hand-outs over {restarts} restarts, "
        f"{len(journal.commits)} lake commits"
    )
    return _verdict(
        5, "offsets and epochs never go back", [*watched.wrong, *journal.wrong_epochs(), *journal.wrong_commits()], how
    )


def _alone(spells: Spells | None, broken: Sequence[str]) -> InvariantVerdict:
    words = "one table's failure touches no other"
    if spells is None or not spells.failing.failures:
        return InvariantVerdict(number=9, words=words, held=None, how="no table failed in a quiet spell")
    return _verdict(9, words, [*spells.later(), *broken], spells.in_words())


def _writes_go_on(evidence: Evidence, records: Sequence[Record]) -> InvariantVerdict:
    """In a quiet spell with the lake away, and wherever a run's own trouble was the lake's alone."""
    acks = sorted(at for r in records for at in r.acked.values())
    alone = _lake_alone(evidence)
    silent = [
        f"no write was acknowledged in {b - a:.1f} s of lake trouble"
        for a, b in alone
        if not any(a <= t <= b for t in acks)
    ]
    words, spells = "lake trouble never stops writes", evidence.spells
    if spells is None:
        how = f"{len(alone)} times the lake alone was hurt"
        return (
            _verdict(10, words, silent, how) if alone else InvariantVerdict(number=10, words=words, held=None, how=how)
        )
    how = (
        f"{spells.no_lake.acks(records)} writes in {spells.no_lake.seconds:.0f} s without a lake, and {len(alone)} "
        f"times it alone was hurt"
    )
    return _verdict(10, words, [*silent, *spells.stopped_writes(records)], how)


def _lake_alone(evidence: Evidence) -> list[tuple[float, float]]:
    trouble = [(a, b) for a, b, name in evidence.windows if name in LAKE_TROUBLE and b - a >= QUIET_S]
    others = [
        (a - QUIET_S, b + 2 * QUIET_S) for a, b, name in evidence.windows if any(t in name for t in WRITE_TROUBLE)
    ]
    return [(a, b) for a, b in trouble if not any(a < y and b > x for x, y in others)]


def _reads(path: Path) -> list[dict[str, list[str]]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _good(reads: list[dict[str, list[str]]]) -> int:
    return sum(1 for r in reads if not r["error"])


def _acked(log: dict[int, Record], keys: dict[int, Record]) -> int:
    return sum(len(r.acked) for r in (*log.values(), *keys.values()))


def _figures(
    evidence: Evidence,
    reads: list[dict[str, list[str]]],
    log: dict[int, Record],
    keys: dict[int, Record],
    certificates: dict[str, Certificate],
) -> dict[str, float]:
    landed = {(c.round_id, c.is_rewrite) for c in evidence.journal.commits if c.accepted}
    return {
        "acknowledged": _acked(log, keys),
        "in-doubt": sum(len(r.doubted) for r in (*log.values(), *keys.values())),
        "lake-rows": sum(c.rows for c in certificates.values()),
        "rows-compared": sum(b.compared for c in certificates.values() for b in c.buckets),
        "reads": len(reads),
        "reads-refused": sum(1 for r in reads if r["error"]),
        "rounds": sum(not is_rewrite for _, is_rewrite in landed),
        "compactions": sum(is_rewrite for _, is_rewrite in landed),
        "commits-without-lease": len(evidence.journal.stale()),
        "catch-up-s": evidence.recovery_s,
    }
