# SPDX-License-Identifier: Apache-2.0
"""Files one after the other into a table, with progress, and exact words where one stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.cli.files.filerows import FileRows, FileShape, Rejects
from lakeward.cli.files.filewrite import Advance, FileWrite
from lakeward.cli.files.journal import WriteJournal
from lakeward.cli.files.rowfiles import WriteFormat, find_files, format_of, read_file
from lakeward.cli.files.writeprogress import WriteProgress
from lakeward.cli.output import note
from lakeward.errors import InvalidRequest, LakewardError
from lakeward.protocol.flight import PutKind
from lakeward.protocol.writetoken import WriteToken

if TYPE_CHECKING:
    from lakeward.client.table import Table

LOOK_S = 1.0
"""Between two looks into a folder that is followed; a file whose size stays is whole."""


class WriteFiles:
    def __init__(
        self,
        table: Table,
        shape: FileShape,
        format: WriteFormat | None,
        *,
        delete: bool = False,
        replace: bool = False,
        rejects: Rejects,
    ) -> None:
        self.table, self.shape, self.format, self.replace, self.rejects = table, shape, format, replace, rejects
        self.kind = PutKind.DELETE if delete else PutKind.UPSERT if table.info.is_pk else PutKind.APPEND
        self.rows = 0
        self.token: WriteToken | None = None

    def run(self, files: Sequence[str], *, atomic: bool = False, resume: bool = False) -> None:
        """Raises what stopped it, after saying what is stored."""
        if atomic and "-" in files:
            raise InvalidRequest(
                what="--atomic", reason="standard input cannot be read twice; write it to a file first"
            )
        if atomic:
            for file in files:
                FileWrite(self.table, self.kind, WriteJournal(None, 0), replace=self.replace).check(self._read(file))
        with WriteProgress(files) as progress:
            for file in files:
                self._write(file, progress.of(file), resume=resume)

    def follow(self, folders: Sequence[str], stop: threading.Event | None = None) -> None:
        """Each file once it is whole, until the event, or Ctrl-C."""
        stopped, sizes = stop or threading.Event(), dict[str, int]()
        name = str(self.table.info.table_id)
        while not stopped.is_set():
            for file in find_files(folders):
                size = Path(file).stat().st_size
                if sizes.get(file) == size and not WriteJournal.is_done(name, file, str(self.kind)):
                    before = self.rows
                    self._write(
                        file, lambda _rows, _part: None, resume=WriteJournal.is_kept(name, file, str(self.kind))
                    )
                    WriteJournal.mark_done(name, file, str(self.kind))
                    note(f"{file}: {self.rows - before:,} rows written to {self.table.path}")
                sizes[file] = size
            stopped.wait(LOOK_S)

    def _write(self, file: str, advance: Advance, *, resume: bool) -> None:
        begin = WriteJournal.resume if resume else WriteJournal.begin
        journal = begin(str(self.table.info.table_id), file, str(self.kind))
        job = FileWrite(self.table, self.kind, journal, replace=self.replace)
        try:
            job.run(self._read(file), self.rejects, advance)
        except LakewardError:
            note(_account(file, job))
            raise
        finally:
            self.rows += job.stored
            if job.token is not None:
                self.token = job.token if self.token is None else self.token.merged(job.token)

    def _read(self, file: str) -> Iterator[FileRows]:
        return read_file(file, self.format or format_of(file), self.table.info.schema, self.shape, self.rejects)


def _account(file: str, job: FileWrite) -> str:
    """What is stored of a file whose write stopped."""
    stored = job.before + job.stored
    if not stored:
        kept = f"no row of {file} was acknowledged"
    else:
        last = "" if job.last is None else f", the last of them {job.last.short}"
        kept = f"{stored:,} rows of {file} are stored{last}; those after it are not"
    if file == "-" or job.journal.path is None:
        return kept
    return f"{kept}. --resume goes on from there, and stores nothing twice"
