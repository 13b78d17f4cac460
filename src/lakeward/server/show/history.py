# SPDX-License-Identifier: Apache-2.0
"""The last hour of figures: lag per table, queue depth, remote log bytes, lake files. In memory, and in a file of lines
so that a restart keeps it."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakeward.protocol.views import TableStatus

SAMPLE_S = 10.0
KEPT = 360
"""One hour of samples."""

HISTORY_FILE = "history.jsonl"
_HOUR_MS = 3_600_000

Sample = tuple[int, int]


class History:
    """Rings of samples; `take` is called by one thread, reads by any. With a file each sample is a line of it; after an
    hour of them it becomes `history.jsonl.old`. Nobody waits for the disk: a power cut may take the newest."""

    def __init__(self, file: Path | None = None) -> None:
        self._lock, self._file, self._lines = threading.Lock(), file, 0
        self._lags: dict[str, deque[Sample]] = {}
        self._figures: dict[str, deque[Sample]] = {}
        if file is not None:
            self._load(file)

    def take(self, at_ms: int, tables: Iterable[TableStatus], **figures: int) -> None:
        lags = {str(t.path): t.lag_ms for t in tables}
        with self._lock:
            for gone in set(self._lags) - set(lags):
                del self._lags[gone]
            self._add(at_ms, lags, figures)
        if self._file is not None:
            self._append(self._file, at_ms, lags, figures)

    def lag(self, table: str, *, points: int = KEPT) -> list[Sample]:
        """Oldest first; `points` at the most, each the highest of those it stands for: a peak is never thinned away."""
        with self._lock:
            held = list(self._lags.get(table, ()))
        step = -(-len(held) // points) if points else 1
        return (
            held
            if step <= 1
            else [max(held[i : i + step], key=lambda sample: sample[1]) for i in range(0, len(held), step)]
        )

    def figure(self, name: str) -> list[Sample]:
        with self._lock:
            return list(self._figures.get(name, ()))

    def _add(self, at_ms: int, lags: dict[str, int], figures: dict[str, int]) -> None:
        for held, values in ((self._lags, lags), (self._figures, figures)):
            for name, value in values.items():
                held.setdefault(name, deque(maxlen=KEPT)).append((at_ms, value))

    def _append(self, file: Path, at_ms: int, lags: dict[str, int], figures: dict[str, int]) -> None:
        """Tables that do not lag are named in the first line alone."""
        if self._lines >= KEPT:
            file.replace(_old(file))
            self._lines = 0
        shown = {name: lag for name, lag in lags.items() if lag or not self._lines}
        with file.open("a") as target:
            target.write(json.dumps({"at": at_ms, "lags": shown, "figures": figures}, separators=(",", ":")) + "\n")
        self._lines += 1

    def _load(self, file: Path) -> None:
        """A line that is cut or makes no sense is left out. All becomes the old file: the new one begins with every
        table's name."""
        samples = {line["at"]: line for part in (_old(file), file) for line in _lines(part)}
        kept = [samples[at] for at in sorted(samples)][-KEPT:]
        names = {name for line in kept for name in line["lags"]}
        for line in kept:
            if line["at"] > kept[-1]["at"] - _HOUR_MS:
                self._add(line["at"], {n: line["lags"].get(n, 0) for n in names}, line["figures"])
        if file.exists():
            _old(file).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept))
            file.unlink()


def _old(file: Path) -> Path:
    return file.with_name(f"{file.name}.old")


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        texts = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for text in texts[-KEPT:]:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            line = json.loads(text)
            lags = {str(name): int(lag) for name, lag in line["lags"].items()}
            figures = {str(name): int(value) for name, value in line["figures"].items()}
            yield {"at": int(line["at"]), "lags": lags, "figures": figures}
