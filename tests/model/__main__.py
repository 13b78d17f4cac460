# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.model [worlds|mutations] [WORDS OF A NAME]`: what the search finds, and the steps to it."""

from __future__ import annotations

import sys

from tests.model.mutations import COVERED, ENVIRONMENT, MUTATIONS, READINGS, Mutation
from tests.model.rules import Rules
from tests.model.search import search
from tests.model.worlds import WORLDS

LIMIT = 3_000_000


def main(what: str = "worlds", *words: str) -> None:
    cases: dict[str, Mutation] = {name: (world, "") for name, world in WORLDS.items()}
    if what == "mutations":
        cases = {**MUTATIONS, **READINGS, **COVERED, **{name: (world, "") for name, world in ENVIRONMENT.items()}}
    for name, (world, off) in cases.items():
        if " ".join(words) not in name:
            continue
        outcome = search(world, Rules().without(off), LIMIT)
        said = outcome.violation or ("all invariants hold" if outcome.whole else "nothing found within the limit")
        print(f"{name}: {said} [{outcome.states} states, depth {outcome.depth}, {outcome.seconds:.1f} s]", flush=True)
        for number, label in enumerate(outcome.trace, 1):
            print(f"    {number}. {label}")


if __name__ == "__main__":
    main(*sys.argv[1:])
