# SPDX-License-Identifier: Apache-2.0
"""A job's own figures, in Prometheus's text form, on a small HTTP endpoint."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lakeward.model import WorkKind
from lakeward.protocol.heartbeat import TableFinished
from lakeward.tiering.work.kinds import KINDS
from lakeward.tiering.work.runner import RoundEnd


@dataclass
class KindFigures:
    """Totals of one kind of work."""

    outcomes: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("finished", "empty", "force_finished", "failed", "given_back"), 0)
    )
    rows: int = 0
    bytes_written: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("plan", "write", "resolve", "commit"), 0.0)
    )

    def note(self, end: RoundEnd) -> None:
        if not isinstance(end, TableFinished):
            self.outcomes["given_back" if end.given_back else "failed"] += 1
            return
        self.outcomes["finished"] += 1
        self.outcomes["force_finished"] += end.force_finished
        if end.result is None:
            self.outcomes["empty"] += 1
            return
        self.rows += end.result.rows
        self.bytes_written += end.result.bytes_written
        for phase in self.seconds:
            self.seconds[phase] += getattr(end.result.phases, f"{phase}_s")


class JobMetrics:
    """Counters since the job started, by kind of work. Safe to use from several threads."""

    def __init__(self) -> None:
        self._by_kind: dict[WorkKind, KindFigures] = {kind: KindFigures() for kind in KINDS}
        self._lock = threading.Lock()

    def note(self, end: RoundEnd) -> None:
        with self._lock:
            self._by_kind.setdefault(end.kind, KindFigures()).note(end)

    def render(self) -> str:
        with self._lock:
            by_kind = self._by_kind.items()
            return "\n".join(
                [
                    *_head("rounds", "Rounds of this job that ended, by kind of work and outcome."),
                    *(_line("rounds", v, kind=k, outcome=o) for k, f in by_kind for o, v in f.outcomes.items()),
                    *_head("rows", "Rows this job wrote into the lake."),
                    *(_line("rows", f.rows, kind=k) for k, f in by_kind),
                    *_head("bytes", "Bytes this job wrote into the lake."),
                    *(_line("bytes", f.bytes_written, kind=k) for k, f in by_kind),
                    *_head("phase_seconds", "Seconds this job's rounds spent, by phase."),
                    *(
                        _line("phase_seconds", f"{v:.6f}", kind=k, phase=p)
                        for k, f in by_kind
                        for p, v in f.seconds.items()
                    ),
                    "",
                ]
            )


def _line(name: str, value: object, **labels: str) -> str:
    inside = ",".join(f'{k}="{v}"' for k, v in labels.items())
    return f"lakeward_job_{name}_total{{{inside}}} {value}"


def _head(name: str, help: str) -> list[str]:
    return [f"# HELP lakeward_job_{name}_total {help}", f"# TYPE lakeward_job_{name}_total counter"]


class MetricsServer:
    """`/metrics` on loopback, in a thread of its own. Port 0 takes a free one."""

    def __init__(self, metrics: JobMetrics, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = metrics.render().encode() if self.path == "/metrics" else b"not found\n"
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/metrics"
        threading.Thread(target=self._http.serve_forever, name="lakeward-metrics", daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
