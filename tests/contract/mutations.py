# SPDX-License-Identifier: Apache-2.0
"""Takes one protection of `lake/core` away and runs the cases of the contract suite that name it, for each format:
`python -m tests.contract.mutations [WORDS OF ITS NAME]`. The tree stays as it is: the source is mutated in a copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = {
    "memory": "test_memory_lake.py::TestMemoryLake",
    "toy": "test_toy_lake.py::TestToyLake",
    "delta": "test_delta_lake.py::TestDeltaLake",
    "lance": "test_lance_lake.py::TestLanceLake",
    "iceberg": "test_iceberg_lake.py::TestSqlCatalog",
    "paimon": "test_paimon_lake.py::TestPaimonLake",
    "hudi": "test_hudi_lake.py::TestHudiLake",
}
BY_POSITION = ("memory", "toy", "delta", "lance")
"""Formats whose changes `core/positions.py` works out; the others bring their own."""
_NEVER = " and False:"


@dataclass(frozen=True)
class Mutation:
    """`edits`: file below `lake/core`, its text, and what takes its place. `cases`: for `pytest -k`."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    cases: str
    formats: Collection[str] = tuple(SUITES)


def drop(name: str, file: str, condition: str, cases: str, formats: Collection[str] = tuple(SUITES)) -> Mutation:
    """The condition never holds."""
    kept = re.sub(r"^if (\w+ := .*|.*):$", lambda m: f"if ({m[1]}){_NEVER}", condition)
    return Mutation(name, ((file, condition, kept),), cases, formats)


MUTATIONS = (
    drop(
        "offsets may go back",
        "committer.py",
        "if back := properties.breach(base):",
        "offsets_never_go_back_in_one_generation",
    ),
    drop(
        "a commit without its precondition",
        "committer.py",
        "if broken := precondition.breach(committable.base, TableId(request.keys[TABLE_ID_KEY])):",
        "stale_offsets_is_refused or stale_token_is_refused or starts_elsewhere or planned_on_must_stand",
    ),
    Mutation(
        "prepared on a head that nobody looked at",
        (
            ("committer.py", "if base.head != ground.head_id:", "if False:"),
            ("committer.py", "if broken is not None:", "if False:"),
            ("committer.py", "if broken := precondition.breach(", "if False and precondition.breach("),
        ),
        "a_fence_needs_the_head_it_was_planned_on or a_fence_stops_a_paused_round",
    ),
    Mutation(
        "a lost race may be tried again",
        (("reconcile.py", "lost = precondition.breach(load_base()) is not None", "lost = False"),),
        "of_rounds_that_race_one_wins or a_fence_stops_a_rewrite or fence_in_between_is_the_end",
    ),
    Mutation(
        "an unknown outcome is a refusal",
        (
            (
                "committer.py",
                "raise CommitUnknown(table=table, round_id=round_id, reason=str(error)) from error",
                "raise CommitConflict(table=table, round_id=round_id, reason=str(error)) from error",
            ),
        ),
        "a_lost_answer_to_a_commit_that_took_effect or a_lost_request_is_sent_again",
    ),
    Mutation(
        "a rewrite is found by its round's id",
        (("reconcile.py", "return min(own, key=", "return max(own, key="),),
        "a_rewrite_is_found_by_its_own_id",
    ),
    drop(
        "a rollback is built on",
        "reconcile.py",
        "if history.is_rolled_back and history.newest is not None and not as_is:",
        "a_rollback_is_noticed or a_rollback_is_never_built_on",
    ),
    drop("another table's lake", "reconcile.py", "if owner != table_id:", "another_tables_lake_is_refused"),
    Mutation(
        "fence and generation go back",
        (("reconcile.py", "for k in history.counted)", "for k in (commit.keys,))"),),
        "fence_and_generation_do_not_go_back",
    ),
    Mutation(
        "protected snapshots expire",
        (
            ("log.py", "if s not in retained]", "]"),
            ("storage.py", "protected = self._log.protected(ground)", "protected = set[SnapshotId]()"),
        ),
        "tagged_snapshot_and_the_head_stay or has_a_name_stays or with_a_name_stays or old_snapshots_only",
    ),
    drop(
        "young snapshots expire",
        "log.py",
        "if superseded_at_ms >= now_ms - limit.max_age_ms:",
        "old_snapshots_only or age_counts_from_the_next",
    ),
    Mutation(
        "fewer snapshots stay than the table says",
        (("log.py", "max(1, limit.min_kept - coming)", "1"),),
        "as_many_snapshots_stay",
    ),
    drop(
        "foreign rows stop no round",
        "foreign.py",
        "if not is_resync and (is_ambiguous or not removes_foreign_rows(table)):",
        "others_inserted_stop_the_round or rows_of_another_engine_never_become_ours",
    ),
    drop(
        "a replaced row that no file has",
        "positions.py",
        "if missing and not self._others_deleted(ground):",
        "a_replaced_row_that_is_nowhere",
        BY_POSITION,
    ),
    Mutation(
        "late deletes stay behind",
        (("positions.py", "late |= _carry_over(new, new_files, result, deleted)", "pass"),),
        "deletes_that_came_since_the_plan",
        BY_POSITION,
    ),
    Mutation(
        "a group without its inputs",
        (("positions.py", "if all(self._files.was_emptied(ground, f, result) for f in missing_inputs):", "if True:"),),
        "lost_an_input_is_left_out or files_that_another_engine_rewrote",
        BY_POSITION,
    ),
    drop(
        "a rewrite hides foreign rows",
        "positions.py",
        "if self._find_foreign(ground, head, None, is_resync=False):",
        "rows_of_another_engine or does_not_hide_rows",
        BY_POSITION,
    ),
)


def apply(mutation: Mutation, source: Path) -> None:
    for name, old, new in mutation.edits:
        file = source / "lakeward" / "lake" / "core" / name
        text = file.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{mutation.name}: {name} has {text.count(old)} times: {old}")
        file.write_text(text.replace(old, new))


def survivors(mutation: Mutation) -> tuple[list[str], str]:
    """Formats whose suite does not notice, and what pytest printed."""
    with tempfile.TemporaryDirectory(prefix="lakeward-mutation-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        apply(mutation, source)
        suites = [f"tests/contract/{SUITES[f]}" for f in mutation.formats]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-rfE",
            "-p",
            "no:cacheprovider",
            "-k",
            mutation.cases,
        ]
        paths = [str(source), str(ROOT / "packages" / "lakeward-testing" / "src"), str(ROOT)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        run = subprocess.run(
            [*command, *suites], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    failed = re.findall(r"^(?:FAILED|ERROR) tests/contract/(\S+?::\w+)::", run.stdout, re.MULTILINE)
    return [f for f in mutation.formats if SUITES[f] not in failed], run.stdout


def main(words: list[str]) -> int:
    chosen = [m for m in MUTATIONS if all(w in m.name for w in words)]
    alive = 0
    for mutation in chosen:
        unnoticed, printed = survivors(mutation)
        alive += bool(unnoticed)
        print(f"{mutation.name}: {'not noticed by ' + ', '.join(unnoticed) if unnoticed else 'noticed'}", flush=True)
        if words:
            print(printed)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
