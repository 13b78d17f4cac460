# SPDX-License-Identifier: Apache-2.0
"""Sorts batches by `__offset` in bounded memory: sorted runs in temporary files, then a merge of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import OFFSET

BUDGET_BYTES = 128 * 1024 * 1024
"""Rows held before a run is written out; the merge holds one batch of each run."""

RUN_ROWS = 16_384
OUT_ROWS = 65_536


def sort_by_offset(batches: Iterable[pa.RecordBatch], budget_bytes: int = BUDGET_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in ascending offset order, in batches. Nothing is spilled when all of them fit the budget."""
    with ExitStack() as stack:
        runs: list[Path] = []
        held: list[pa.RecordBatch] = []
        held_bytes = 0

        def spill() -> None:
            folder = runs[0].parent if runs else Path(stack.enter_context(TemporaryDirectory(prefix="lakeward-sort-")))
            runs.append(_write_run(_sorted(held), folder / f"{len(runs)}.arrow"))

        for batch in batches:
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= budget_bytes:
                spill()
                held, held_bytes = [], 0
        if not runs:
            yield from _sorted(held).to_batches(OUT_ROWS) if held else ()
            return
        if held:
            spill()
        yield from _merge([_read_run(path) for path in runs])


def _sorted(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.take(pc.sort_indices(table.column(OFFSET)))


def _write_run(table: pa.Table, path: Path) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=RUN_ROWS)
    return path


def _read_run(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        yield from reader


def _merge(runs: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Each step gives out what lies at or below the lowest last offset of the batches in hand: nothing later can be
    lower.
    """
    heads: dict[int, pa.RecordBatch] = {}
    for number, run in enumerate(runs):
        _advance(heads, number, run)
    while heads:
        bound = min(_last(batch) for batch in heads.values())
        ready: list[pa.RecordBatch] = []
        for number in list(heads):
            cut = _count_up_to(heads[number], bound)
            if cut:
                ready.append(heads[number].slice(0, cut))
            heads[number] = heads[number].slice(cut)
            if not heads[number].num_rows:
                _advance(heads, number, runs[number])
        yield from _sorted(ready).to_batches(OUT_ROWS)


def _advance(heads: dict[int, pa.RecordBatch], number: int, run: Iterator[pa.RecordBatch]) -> None:
    batch = next(run, None)
    if batch is None:
        heads.pop(number, None)
    else:
        heads[number] = batch


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column(OFFSET)[batch.num_rows - 1].as_py())


def _count_up_to(batch: pa.RecordBatch, bound: int) -> int:
    offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    return int(offsets.searchsorted(bound, side="right"))
