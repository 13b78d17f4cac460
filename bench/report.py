# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks: measures CPU and memory, prints one table, stores bench/results/NAME.json. Also runs them.

    report = Report("startup")
    with report.measure() as cost:
        ...
    report.add("import lakeward", figure=61.0, unit="ms", beside=20.0, beside_what="python -c pass", target="<= 150",
    cost=cost)
    report.finish()

`python -m bench.report` runs every benchmark, `python -m bench.report NAME` one.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

FOLDER = Path(__file__).parent
IS_SMALL = any(name.startswith("LAKEWARD_BENCH_") for name in os.environ)
"""A smaller version was asked for: its results are kept apart, so that they never replace those of a whole run."""

RESULTS = FOLDER.parent / "build" / "bench" if IS_SMALL else FOLDER / "results"
_NOT_BENCHMARKS = {"report", "__init__"}


@dataclass(kw_only=True)
class Cost:
    """CPU seconds of this process and its children, their peak memory together, and the wall time, of one block."""

    cpu_s: float = 0.0
    peak_rss_mb: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """`beside`: what it was measured against, in the same run. `ratio`: figure / beside. `met` is None without a
    target.
    """

    case: str
    figure: float
    unit: str
    beside: str | None
    ratio: float | None
    target: str | None
    met: bool | None
    cpu_s: float
    peak_rss_mb: float
    note: str | None = None
    """Where a target is missed: by how much, what the profile shows, what would mend it. Or what the figure does not
    hold.
    """


@dataclass
class Report:
    name: str
    results: list[Result] = field(default_factory=list)
    folder: Path = RESULTS

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        """Fills a `Cost` for the block, child processes included."""
        cost = Cost()
        peak = _PeakMemory()
        wall, cpu = time.perf_counter(), _cpu_seconds()
        peak.start()
        try:
            yield cost
        finally:
            cost.wall_s = time.perf_counter() - wall
            cost.cpu_s = _cpu_seconds() - cpu
            cost.peak_rss_mb = peak.stop()

    def add(
        self,
        case: str,
        *,
        figure: float,
        unit: str,
        beside: float | None = None,
        beside_what: str | None = None,
        target: str | None = None,
        of: str = "figure",
        cost: Cost | None = None,
        note: str | None = None,
    ) -> Result:
        """Records one line. `target` is `<= 150` or `>= 0.5`, and holds for the figure, or for the ratio with
        `of="ratio"`.
        """
        ratio = figure / beside if beside else None
        judged = ratio if of == "ratio" else figure
        spent = cost or Cost()
        result = Result(
            case=case,
            figure=_round(figure),
            unit=unit,
            beside=None if beside is None else f"{_round(beside):g} {unit}, {beside_what}",
            ratio=None if ratio is None else _round(ratio),
            target=None if target is None else f"{of} {target}",
            met=None if target is None or judged is None else is_met(judged, target),
            cpu_s=_round(spent.cpu_s),
            peak_rss_mb=_round(spent.peak_rss_mb),
            note=note,
        )
        self.results.append(result)
        print(_line(result), flush=True)
        return result

    def finish(self, keep: Callable[[str], bool] = lambda _case: False) -> Path:
        """Stores the results, replacing those of an earlier run, except cases that this run left out and that `keep`
        names.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}.json"
        before = json.loads(path.read_text()) if path.exists() else []
        kept = [r for r in before if keep(r["case"])]
        path.write_text(json.dumps([*kept, *(asdict(r) for r in self.results)], indent=2) + "\n")
        missed = [r.case for r in self.results if r.met is False]
        print(
            f"{self.name}: {len(self.results)} results in {os.path.relpath(path)}, {len(missed)} targets missed",
            flush=True,
        )
        return path


def is_met(value: float, target: str) -> bool:
    sign, _, bound = target.partition(" ")
    return {
        "<=": value <= float(bound),
        ">=": value >= float(bound),
        "<": value < float(bound),
        ">": value > float(bound),
    }[sign]


def find_benchmarks() -> list[str]:
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in _NOT_BENCHMARKS and "Report(" in p.read_text())


def run(names: list[str]) -> int:
    """Each benchmark in a process of its own, so that none inherits another's memory. A benchmark that fails does not
    stop the rest.
    """
    known = find_benchmarks()
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or known:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=FOLDER.parent).returncode:
            failed.append(name)
    if not IS_SMALL:
        from bench.page import write_page

        write_page()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


class _PeakMemory:
    """Watches the resident memory of this process and all its children."""

    def __init__(self, interval_s: float = 0.05) -> None:
        self._interval_s, self._peak, self._done = interval_s, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self._peak / (1 << 20)

    def _watch(self) -> None:
        me = psutil.Process(os.getpid())
        while True:
            self._peak = max(self._peak, sum(_rss(p) for p in [me, *me.children(recursive=True)]))
            if self._done.wait(self._interval_s):
                return


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _cpu_seconds() -> float:
    """CPU of this process, of children that ended, and of children still running."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    running = 0.0
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        running += times.user + times.system
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + running


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _line(result: Result) -> str:
    met = {None: "", True: "met", False: "MISSED"}[result.met]
    beside = f" | beside {result.beside}" if result.beside else ""
    ratio = f" | ratio {result.ratio:g}" if result.ratio is not None else ""
    target = f" | {result.target} {met}" if result.target else ""
    cost = f" | {result.cpu_s:g} CPU s, {result.peak_rss_mb:g} MB" if result.cpu_s or result.peak_rss_mb else ""
    return f"  {result.case}: {result.figure:g} {result.unit}{beside}{ratio}{target}{cost}"


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
