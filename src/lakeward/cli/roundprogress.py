# SPDX-License-Identifier: Apache-2.0
"""A line on standard error while one waits for a round: where the table stands, asked beside the call that waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from lakeward.cli.connection import open_server
from lakeward.errors import LakewardError
from lakeward.model import TablePath
from lakeward.protocol import routes

EVERY_S = 0.5


@contextmanager
def watching(server: str | None, table: str) -> Iterator[None]:
    """Silent where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    console = Console(file=sys.stderr)
    done = threading.Event()
    with console.status(table) as status:
        thread = threading.Thread(target=_watch, args=(server, table, status.update, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _watch(server: str | None, table: str, show: Callable[[str], None], done: threading.Event) -> None:
    """A question that fails shows nothing: the call that waits says what is wrong."""
    path = routes.TABLE_STATUS.format(table=TablePath.parse(table))
    with suppress(LakewardError), closing(open_server(server)) as door:
        while not done.is_set():
            show(describe_progress(door.ask("GET", path)))
            done.wait(EVERY_S)


def describe_progress(status: dict[str, Any]) -> str:
    """Describes a table's status: the running work, else the reason why it waits."""
    words = f"{status['path']}: {status['waiting_rows']:,} rows wait"
    for work in status.get("work", ()):
        if work["job"] is None:
            continue
        progress = work.get("progress") or {}
        splits = f" {progress['splits_done']}/{progress['splits_total']} splits" if progress.get("splits_total") else ""
        trouble = f": {progress['trouble']}" if progress.get("trouble") else ""
        return f"{words}; {work['job']} is at {work['kind']}, {progress.get('phase', 'plan')}{splits}{trouble}"
    return f"{words}; {status['state']}" + ("" if status["served"] else ", and no live job serves its pool")
