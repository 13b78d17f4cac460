# SPDX-License-Identifier: Apache-2.0
"""Runs a source: opens it on the server, stores its groups, reports, and goes on after errors that pass."""

from __future__ import annotations

import io
import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from urllib.parse import quote

import pyarrow as pa

from lakeward.client import Client
from lakeward.errors import LakewardError, SourceGroupLost
from lakeward.protocol import routes
from lakeward.protocol.sources import (
    CommitGroup,
    GroupFile,
    SourceBeat,
    SourceLag,
    SourceStatus,
)
from lakeward.spi.source import Source, SourceGroup, State, Step

log = logging.getLogger(__name__)

CHUNK_BYTES = 4 << 20
MEMORY_BYTES = 16 << 20
"""Groups up to this size are kept in memory, larger ones in a temporary file."""

REPORT_S = 1.0
PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
SERVER_S = 600.0
"""How long a call waits for a server that is away, as while it is replaced."""


class SourceDoor:
    """The server's routes of one source under one epoch."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.epoch = 0

    def open(self) -> SourceStatus:
        status = self._call("POST", routes.SOURCE_OPEN)
        self.epoch = status.source.epoch
        return status

    def show(self) -> SourceStatus:
        return self._call("GET", routes.SOURCE)

    def beat(self, beat: SourceBeat) -> SourceStatus:
        return self._call("POST", routes.SOURCE_BEAT, beat)

    def send_file(self, file: str, data: io.BufferedIOBase) -> GroupFile:
        """Raises `SourceGroupLost` where the server restarted in between."""
        at = 0
        while chunk := data.read(CHUNK_BYTES):
            path = routes.SOURCE_FILE.format(source=quote(self.name, safe=""), file=file)
            params = {"epoch": self.epoch, "at": at}
            self.client.server.ask("PUT", path, bytes(chunk), params=params, timeout_s=120, retry_s=SERVER_S)
            at += len(chunk)
        return GroupFile(name=file, size=at)

    def commit(self, group: CommitGroup) -> SourceStatus:
        return self._call("POST", routes.SOURCE_GROUPS, group, timeout_s=600)

    def _call(self, method: str, route: str, body: object = None, timeout_s: float = 60) -> SourceStatus:
        from lakeward.protocol.codec import decode

        path = route.format(source=quote(self.name, safe=""))
        answer = self.client.server.ask(method, path, body, timeout_s=timeout_s, retry_s=SERVER_S)
        return decode(SourceStatus, answer)


class Ingest:
    """One run of one source: a `spi.source.SourceRun`."""

    def __init__(
        self, client: Client, name: str, source: Source, is_stopping: Callable[[], bool], *, until_idle: bool = False
    ) -> None:
        """`until_idle`: ends once everything that was there at the start is stored."""
        self.client, self.name, self.source, self._is_stopping = client, name, source, is_stopping
        self.until_idle = until_idle
        self.door = SourceDoor(client, name)
        self.status = self.door.show()
        self._reported_at = 0.0
        self.last = SourceBeat(epoch=0, phase="starting")

    def is_stopping(self) -> bool:
        return self._is_stopping()

    def run(self, start: State | None = None) -> None:
        """From the stored position, or from `start`. Returns once it is asked to stop, and then nothing that was read
        is left unstored. Raises `SourceStopped`,
        `SourceFenced`, and other errors that do not pass; the server has the message."""
        self.status = self.door.open()
        if start is not None:
            self._store(SourceGroup(state=start))
        pause_s = PAUSE_S
        while not self.is_stopping():
            if self.status.source.paused:
                self._wait(REPORT_S)
                self.report("paused", force=True)
                continue
            group = self.status.source.group
            try:
                self._run_once()
                if self.until_idle and not self.status.source.paused:
                    break
            except LakewardError as error:
                if not error.retryable:
                    self._tell(error)
                    raise
                log.warning("%s; trying again in %.0f s", error, pause_s)
                self._tell(error, phase="retrying")
                pause_s = PAUSE_S if self.status.source.group > group else min(2 * pause_s, LONGEST_PAUSE_S)
                self._wait(pause_s)
        self.report("ended", force=True)

    def report(
        self,
        phase: str,
        position: str = "",
        lag: SourceLag | None = None,
        held_at: str | None = None,
        *,
        force: bool = False,
    ) -> SourceStatus:
        now, last = time.monotonic(), self.last
        self.last = SourceBeat(
            epoch=self.door.epoch,
            phase=phase,
            position=position or last.position,
            lag=lag or last.lag,
            held_at=held_at,
        )
        is_due = now - self._reported_at >= REPORT_S
        if is_due or force or held_at != last.held_at or phase != last.phase:
            self.status = self.door.beat(self.last)
            self._reported_at = now
        return self.status

    def _run_once(self) -> None:
        try:
            for group in self.source.read(self.status.source.state, self):
                self._store(group)
        finally:
            self.source.close()

    def _store(self, group: SourceGroup) -> None:
        number = self.status.source.group + 1
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as spool:
            write_steps(spool, group.steps)
            while True:
                files = list(group.files)
                try:
                    if spool.tell() or not files:
                        size = spool.seek(0, io.SEEK_END)
                        spool.seek(0)
                        files += [self.door.send_file(f"group-{number}", spool)] if size else []  # type: ignore[arg-type]
                    commit = CommitGroup(epoch=self.door.epoch, group=number, state=group.state, files=tuple(files))
                    self.status = self.door.commit(commit)
                    self.last = SourceBeat(
                        epoch=self.door.epoch, phase=self.last.phase, position=group.position, lag=self.last.lag
                    )
                    return
                except SourceGroupLost:
                    if group.files:
                        raise

    def _tell(self, error: LakewardError, phase: str = "stopped") -> None:
        beat = SourceBeat(epoch=self.door.epoch, phase=phase, position=self.last.position, error=str(error)[:2000])
        try:
            self.status = self.door.beat(beat)
        except LakewardError as second:
            log.warning("the server does not hear of it: %s", second)

    def _wait(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and not self.is_stopping():
            time.sleep(0.05)


def write_steps(file: object, steps: Iterable[Step]) -> None:
    for step in steps:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, step.rows.schema) as stream:
            stream.write_table(step.rows)
        file.write(step.frame.to_bytes(sink.getvalue().to_pybytes()))  # type: ignore[attr-defined]
