# SPDX-License-Identifier: Apache-2.0
"""The last hour of figures: lag per side, queue depth, remote log bytes, lake files. In memory, and in a file of lines
so that a restart keeps it."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.model import DEFAULT_SIDE, SideName, TablePath
from lakeward.protocol.views import TableStatus

if TYPE_CHECKING:
    from lakeward.coordinator.state.record import LagDrop

SAMPLE_S = 10.0
KEPT = 360
"""One hour of samples."""

HISTORY_FILE = "history.jsonl"
_HOUR_MS = 3_600_000
_MOST_POINTS = 2 * KEPT
"""Where rounds ended within a sample, the lag before and after them stand in its place."""

Sample = tuple[int, int]


def lag_name(path: TablePath, side: SideName) -> str:
    """`db.t`, and `db.t/lake` for a side that is not the default one."""
    return str(path) if side == DEFAULT_SIDE else f"{path}/{side}"


class History:
    """Rings of samples; `take` is called by one thread, reads by any. With a file each sample is a line of it; after an
    hour of them it becomes `history.jsonl.old`. No call waits for the disk: a power cut may take the newest."""

    def __init__(self, file: Path | None = None) -> None:
        self._lock, self._file, self._lines = threading.Lock(), file, 0
        self._lags: dict[str, deque[Sample]] = {}
        self._figures: dict[str, deque[Sample]] = {}
        if file is not None:
            self._load(file)

    def take(self, at_ms: int, tables: Iterable[TableStatus], drops: Iterable[LagDrop] = (), **figures: int) -> None:
        """`drops`: commits since the last sample, without which samples would miss the peaks of short rounds."""
        lags, teeth = {lag_name(t.path, t.side): t.lag_ms for t in tables}, plan_teeth(drops)
        with self._lock:
            for dropped in set(self._lags) - set(lags):
                del self._lags[dropped]
            self._add(at_ms, lags, teeth, figures)
        if self._file is not None:
            self._append(self._file, at_ms, lags, teeth, figures)

    def lag(self, name: str, *, points: int = _MOST_POINTS) -> list[Sample]:
        """Oldest first; about `points` at the most: of those that are close together the lowest and the highest, so
        that neither a peak nor what a round brought is thinned away."""
        with self._lock:
            samples = list(self._lags.get(name, ()))
        if len(samples) <= points:
            return samples
        step = -(-2 * len(samples) // points)
        groups = (samples[i : i + step] for i in range(0, len(samples), step))
        return [sample for group in groups for sample in _extremes(group)]

    def figure(self, name: str) -> list[Sample]:
        with self._lock:
            return list(self._figures.get(name, ()))

    def _add(
        self, at_ms: int, lags: Mapping[str, int], teeth: Mapping[str, Sequence[Sample]], figures: Mapping[str, int]
    ) -> None:
        for name, lag in lags.items():
            self._lags.setdefault(name, deque(maxlen=_MOST_POINTS)).extend(teeth.get(name) or [(at_ms, lag)])
            while self._lags[name][0][0] <= at_ms - _HOUR_MS:
                self._lags[name].popleft()
        for name, value in figures.items():
            self._figures.setdefault(name, deque(maxlen=KEPT)).append((at_ms, value))

    def _append(
        self,
        file: Path,
        at_ms: int,
        lags: Mapping[str, int],
        teeth: Mapping[str, Sequence[Sample]],
        figures: Mapping[str, int],
    ) -> None:
        """Tables that do not lag are named in the first line alone."""
        if self._lines >= KEPT:
            file.replace(_old(file))
            self._lines = 0
        shown = {name: lag for name, lag in lags.items() if lag or not self._lines}
        line = {"at": at_ms, "lags": shown, "figures": figures, **({"teeth": teeth} if teeth else {})}
        with file.open("a") as target:
            target.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._lines += 1

    def _load(self, file: Path) -> None:
        """A line that is cut or makes no sense is left out. All becomes the old file: the new one begins with every
        table's name."""
        samples = {line["at"]: line for part in (_old(file), file) for line in _lines(part)}
        newest = [samples[at] for at in sorted(samples)][-KEPT:]
        names = {name for line in newest for name in line["lags"]}
        for line in newest:
            if line["at"] > newest[-1]["at"] - _HOUR_MS:
                lags = {n: line["lags"].get(n, 0) for n in names}
                self._add(line["at"], lags, line["teeth"], line["figures"])
        if file.exists():
            _old(file).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in newest))
            file.unlink()


def plan_teeth(drops: Iterable[LagDrop]) -> dict[str, list[Sample]]:
    """For the commits between two samples: the highest lag before one and the lowest after one, in order of time."""
    by_name: dict[str, list[LagDrop]] = {}
    for drop in drops:
        by_name.setdefault(lag_name(drop.path, drop.side), []).append(drop)
    return {name: _tooth(of_name) for name, of_name in by_name.items()}


def _tooth(drops: Sequence[LagDrop]) -> list[Sample]:
    peak = max(drops, key=lambda drop: drop.before_ms)
    low = min(drops, key=lambda drop: drop.after_ms)
    points = [(peak.at_ms, peak.before_ms), (low.at_ms, low.after_ms)]
    return sorted(points, key=lambda sample: sample[0])


def _extremes(group: Sequence[Sample]) -> list[Sample]:
    low, high = (choose(range(len(group)), key=lambda n: group[n][1]) for choose in (min, max))
    return [group[n] for n in sorted({low, high})]


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
            teeth = {str(n): [(int(at), int(lag)) for at, lag in t] for n, t in line.get("teeth", {}).items()}
            yield {"at": int(line["at"]), "lags": lags, "figures": figures, "teeth": teeth}
