# SPDX-License-Identifier: Apache-2.0
"""How far a write of files is: rows, and bytes of the total where that is known. On standard error; silent where that
is no terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from lakeward.cli.files.filewrite import Advance


class WriteProgress:
    def __init__(self, files: Sequence[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=sys.stderr)
        self.sizes = {f: Path(f).stat().st_size for f in files if Path(f).is_file()}
        self.total = sum(self.sizes.values()) if len(self.sizes) == len(files) else None
        self.rows, self.done_bytes = 0, 0
        self._bar = Progress(
            TextColumn(f"writing {len(files)} files" if len(files) > 1 else "writing"),
            BarColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("bytes", total=self.total, rows=0)

    def of(self, file: str) -> Advance:
        """Progress of writing this file; the bytes of earlier files are done."""
        size, before = self.sizes.get(file, 0), self.done_bytes
        self.done_bytes = before + size

        def advance(rows: int, part: float | None) -> None:
            self.rows += rows
            expected_rows = None if self.total is None or part is None else before + round(size * part)
            self._bar.update(self._task, rows=self.rows, completed=expected_rows)

        self._bar.update(self._task, completed=before)
        return advance

    def __enter__(self) -> WriteProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
