# SPDX-License-Identifier: Apache-2.0
"""What a test writes to a Fluss cluster, as data; `produce` has it done by pyfluss in a process of its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

LIMIT_S = 60
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MakeTable:
    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    buckets: int = 2
    freshness: str = "1s"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MakePartition:
    table: str
    spec: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Append:
    table: str
    rows: pa.RecordBatch
    chunk: int = 5_000
    repeat: int = 1


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


Step = MakeTable | MakePartition | Append | Upsert | UpsertRange | Delete | DropTable | LakeSnapshotOf
DATABASE = "shop"


def produce(bootstrap: str, *steps: Step, limit_s: int = LIMIT_S) -> list[Any]:
    """Runs the steps in order, each flushed before the next begins; what the steps answered."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fluss.producer", bootstrap, str(limit_s)],
        input=pickle.dumps(steps),
        capture_output=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"pyfluss: {done.stderr.decode()[-3000:]}")
    answers: list[Any] = pickle.loads(done.stdout)
    return answers
