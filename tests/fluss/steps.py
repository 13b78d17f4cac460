# SPDX-License-Identifier: Apache-2.0
"""What a test writes to a Fluss cluster, as data; `produce` has it done by pyfluss in a process of its own."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import pyarrow as pa

LIMIT_S = 45
"""For all steps of a call. pyfluss needs a second or two, and has been seen to hang; a machine full of other tests is
slow.
"""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MakeTable:
    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    buckets: int = 2
    freshness: str = "1s"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MakePartition:
    table: str
    spec: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Append:
    """Answers the time at which writing began. pyfluss puts all of a chunk where its first row belongs: rows of several
    partitions, or of a table with a bucket key, go one by one.
    """

    table: str
    rows: pa.RecordBatch
    chunk: int = 5_000
    repeat: int = 1
    is_by_row: bool = False

    @property
    def count(self) -> int:
        return int(self.rows.num_rows) * self.repeat


@dataclass(frozen=True, kw_only=True)
class Upsert:
    table: str
    rows: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class UpsertRange:
    """`template` with every step-th id of a range in its first column: many rows without sending them here."""

    table: str
    start: int
    stop: int
    template: tuple[Any, ...]
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Delete:
    table: str
    keys: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class DropTable:
    table: str


@dataclass(frozen=True, kw_only=True)
class LakeSnapshotOf:
    """Fluss's own answer: (snapshot id, {(partition id, bucket): offset})."""

    table: str


@dataclass(frozen=True, kw_only=True)
class KvScan:
    """Every row that Fluss's KV store holds of a PK table, as Fluss gives them to a client that asks."""

    table: str
    limit: int = 100_000
    """Of a bucket."""


EVENTS = pa.schema([("id", pa.int64()), ("name", pa.string())])
USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
"""Schemas that most tests are content with."""

Step = MakeTable | MakePartition | Append | Upsert | UpsertRange | Delete | DropTable | LakeSnapshotOf | KvScan
DATABASE = "shop"


def events(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": n, "name": f"event {n}"} for n in range(start, stop)], schema=EVENTS)


class Unfinished(AssertionError):
    """The client process hung or died; `answers` are those of the steps before that."""

    def __init__(self, answers: list[Any], words: str) -> None:
        super().__init__(words)
        self.answers = answers


def produce(bootstrap: str, *steps: Step, limit_s: int = LIMIT_S, login: tuple[str, str] | None = None) -> list[Any]:
    """Runs the steps in order, each flushed before the next begins; what the steps answered. Raises `Unfinished`."""
    command = [sys.executable, "-m", "tests.fluss.producer", bootstrap, str(limit_s), *(login or ())]
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as said:
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=answers, stderr=said)
        try:
            client.communicate(pickle.dumps(steps), timeout=limit_s)
            words = f"ended with {client.returncode}"
        except subprocess.TimeoutExpired:
            words = f"did not end within {limit_s} s"
        finally:
            client.kill()
            client.wait()
        found = _load_all(answers)
        if len(found) == len(steps):
            return found
        said.seek(0)
        raise Unfinished(found, f"pyfluss {words} in step {len(found)} of {len(steps)}: {said.read().decode()[-3000:]}")


def _load_all(file: IO[bytes]) -> list[Any]:
    """Answers up to where the client got; a cut one at the end counts as none."""
    file.seek(0)
    found = []
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            found.append(pickle.load(file))
    return found
