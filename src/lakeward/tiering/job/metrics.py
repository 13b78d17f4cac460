# SPDX-License-Identifier: Apache-2.0
"""A job's own figures, in Prometheus's text form, on a small HTTP endpoint."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lakeward.protocol.heartbeat import TableFinished
from lakeward.tiering.round.round import RoundEnd


@dataclass
class JobMetrics:
    """Counters since the job started. Safe to use from several threads."""

    finished: int = 0
    empty: int = 0
    force_finished: int = 0
    failed: int = 0
    given_back: int = 0
    rows: int = 0
    bytes_written: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("plan", "write", "resolve", "commit"), 0.0)
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, end: RoundEnd) -> None:
        with self._lock:
            if not isinstance(end, TableFinished):
                self.failed += not end.given_back
                self.given_back += end.given_back
                return
            self.finished += 1
            self.force_finished += end.force_finished
            if end.result is None:
                self.empty += 1
                return
            self.rows += end.result.rows
            self.bytes_written += end.result.bytes_written
            for phase in self.seconds:
                self.seconds[phase] += getattr(end.result.phases, f"{phase}_s")

    def render(self) -> str:
        with self._lock:
            rounds = {
                "finished": self.finished,
                "empty": self.empty,
                "force_finished": self.force_finished,
                "failed": self.failed,
                "given_back": self.given_back,
            }
            lines = _head("rounds", "Rounds of this job that ended, by outcome.")
            lines += [f'lakeward_job_rounds_total{{outcome="{k}"}} {v}' for k, v in rounds.items()]
            lines += [*_head("rows", "Rows this job wrote into the lake."), f"lakeward_job_rows_total {self.rows}"]
            lines += [
                *_head("bytes", "Bytes this job wrote into the lake."),
                f"lakeward_job_bytes_total {self.bytes_written}",
            ]
            lines += _head("phase_seconds", "Seconds this job's rounds spent, by phase.")
            lines += [f'lakeward_job_phase_seconds_total{{phase="{k}"}} {v:.6f}' for k, v in self.seconds.items()]
        return "\n".join(lines) + "\n"


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
