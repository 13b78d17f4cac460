# SPDX-License-Identifier: Apache-2.0
"""Takes rows in any order and returns them by windows of offsets: in memory while they are few, in temporary files
beyond that. So each side of a comparison is read once, however long the bucket is and in whatever order its files were
written."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from lakeward.model import OFFSET, Offsets
from lakeward.verify.task import as_table

HELD_BYTES = 64 << 20
"""Memory that one side of a comparison uses before it spills to disk."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class WindowSpill:
    """`starts`: where each window begins, ascending. A context manager: what is on disk goes with it."""

    def __init__(self, starts: Sequence[int] | Offsets, held_bytes: int = HELD_BYTES) -> None:
        self._starts = np.asarray(starts, np.int64)
        self._limit = held_bytes
        self._held: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._bytes = 0
        self._files: dict[int, int] = defaultdict(int)
        self._folder: Path | None = None
        self._stack = ExitStack()

    def __enter__(self) -> WindowSpill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows below the first window are not asked for and do not stay."""
        windows = np.searchsorted(self._starts, batch.column(OFFSET).to_numpy(zero_copy_only=False), side="right") - 1
        if len(windows) and windows[0] >= 0 and (windows == windows[0]).all():
            self._keep(int(windows[0]), batch)
            return
        order = np.argsort(windows, kind="stable")
        cuts = [0, *(np.flatnonzero(np.diff(windows[order])) + 1).tolist(), len(order)]
        for low, high in pairwise(cuts):
            if low < high and (window := int(windows[order[low]])) >= 0:
                self._keep(window, batch.take(pa.array(order[low:high])))

    def _keep(self, window: int, rows: pa.RecordBatch) -> None:
        self._held[window].append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._limit:
            self._flush()

    def _flush(self) -> None:
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lakeward-verify-")))
        for window, batches in self._held.items():
            table = as_table(batches)
            assert table is not None
            path = str(self._path(window, self._files[window]))
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
                writer.write_table(table)
            self._files[window] += 1
        self._held.clear()
        self._bytes = 0

    def _path(self, window: int, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{window}-{number}.arrow"

    @property
    def is_on_disk(self) -> bool:
        return self._folder is not None

    def take(self, window: int) -> pa.Table | None:
        """The window's rows, all of them; they are forgotten here. None: there are none."""
        parts = []
        for number in range(self._files.pop(window, 0)):
            path = self._path(window, number)
            with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
                parts += reader.read_all().to_batches()
            path.unlink()
        held = self._held.pop(window, [])
        self._bytes -= sum(b.nbytes for b in held)
        return as_table([*parts, *held])
