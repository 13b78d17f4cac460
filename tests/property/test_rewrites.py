# SPDX-License-Identifier: Apache-2.0
"""Random programs of changes, rounds and rewrites, each step of one between steps of others: after every commit the
lake equals a dict, and in the end every snapshot does.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import CommitConflict
from lakeward.lake.memory.plugin import forget_lake
from lakeward.spi import LakeStorage, RewriteGroup, load_lake
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, B1, LakeSuite
from lakeward_testing.lakes.upserts import PK, change_randomly
from tests.kit.iceberg.folder import folder_lake

PROGRAMS = st.lists(st.sampled_from(("change", "round", "rewrite")), min_size=12, max_size=40)


class Program:
    """One round and one rewrite under way at most: each turn takes one a step on, from its plan to its commit."""

    def __init__(self, lake: LakeStorage, seed: int) -> None:
        self.lake, self.chance = lake, random.Random(seed)
        self.log = LakeSuite().make_log(lake, **PK)
        change_randomly(self.log, self.chance, 20)
        LakeRound.plan(lake, self.log).run()
        self.turns = {"round": self.rounds(), "rewrite": self.rewrites()}

    def step(self, name: str) -> None:
        if name == "change":
            change_randomly(self.log, self.chance, 6)
        else:
            next(self.turns[name])

    def rounds(self) -> Iterator[None]:
        while True:
            made = LakeRound.plan(self.lake, self.log)
            yield
            made.write(B0).write(B1)
            yield
            early = made.prepare()
            yield
            land(partial(made.commit, early), made.commit)
            self.check()
            yield

    def rewrites(self) -> Iterator[None]:
        while True:
            made = LakeRewrite(lake=self.lake, table=self.log.table)
            made.groups = [self.part(group) for group in made.groups]
            yield
            made.write()
            yield
            early = made.prepare()
            yield
            land(partial(made.commit, early), made.commit)
            self.check()
            yield

    def part(self, group: RewriteGroup) -> RewriteGroup:
        """All files of a bucket, or some neighbours, as planners choose them."""
        files = sorted(group.files, key=lambda f: f.offsets.start if f.offsets else -1)
        first = self.chance.randrange(len(files))
        some = files[first : first + self.chance.randint(1, len(files))]
        return replace(group, files=tuple(self.chance.choice([files, some])))

    def check(self) -> None:
        offsets = self.lake.open_reader(self.log.table).load_base().offsets
        assert lake_rows(self.lake, self.log.table) == self.log.expected(offsets)

    def check_all(self) -> None:
        for shown in self.lake.open_reader(self.log.table).snapshots():
            assert shown.offsets is not None
            assert lake_rows(self.lake, self.log.table, shown.snapshot_id) == self.log.expected(shown.offsets)


def land(early: Callable[[], object], again: Callable[[], object]) -> None:
    """On what was prepared, which may be stale by now, else afresh: neither loses its place to the other."""
    try:
        early()
    except CommitConflict as conflict:
        if conflict.lost:
            raise
        again()


@contextmanager
def memory() -> Iterator[LakeStorage]:
    yield load_lake("memory", {"name": "rewrites"})
    forget_lake("rewrites")


@contextmanager
def iceberg() -> Iterator[LakeStorage]:
    with tempfile.TemporaryDirectory() as folder, folder_lake(Path(folder)) as lake:
        yield lake


@contextmanager
def paimon() -> Iterator[LakeStorage]:
    with tempfile.TemporaryDirectory() as folder:
        yield load_lake("paimon", {"warehouse": folder})


def run(opened: LakeStorage, steps: list[str], seed: int) -> None:
    program = Program(opened, seed)
    for name in steps:
        program.step(name)
    program.check_all()


@given(PROGRAMS, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_on_the_memory_lake(steps: list[str], seed: int) -> None:
    with memory() as lake:
        run(lake, steps, seed)


@given(PROGRAMS, st.integers(0, 1000))
@settings(max_examples=6, deadline=None)
def test_on_iceberg(steps: list[str], seed: int) -> None:
    with iceberg() as lake:
        run(lake, steps, seed)


@given(PROGRAMS, st.integers(0, 1000))
@settings(max_examples=6, deadline=None)
def test_on_paimon(steps: list[str], seed: int) -> None:
    with paimon() as lake:
        run(lake, steps, seed)


@pytest.mark.soak
@given(PROGRAMS, st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_on_paimon_for_long(steps: list[str], seed: int) -> None:
    with paimon() as lake:
        run(lake, steps, seed)


@pytest.mark.soak
@given(PROGRAMS, st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_on_iceberg_for_long(steps: list[str], seed: int) -> None:
    with iceberg() as lake:
        run(lake, steps, seed)
