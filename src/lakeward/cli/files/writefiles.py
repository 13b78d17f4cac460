# SPDX-License-Identifier: Apache-2.0
"""Files one after the other into a table, with progress, and exact words where one stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lakeward.cli.files.contract import QuarantinedRows, add_columns, load_contract
from lakeward.cli.files.filerows import FileRows, FileShape, Rejects
from lakeward.cli.files.filewrite import Advance, FileWrite
from lakeward.cli.files.journal import WriteJournal
from lakeward.cli.files.rowfiles import WriteFormat, find_files, followed_size, format_of, read_file
from lakeward.cli.files.writeprogress import WriteProgress
from lakeward.cli.output import counted, note
from lakeward.config.options import SchemaContract
from lakeward.errors import InvalidRequest, LakewardError
from lakeward.protocol.flight import PutKind
from lakeward.protocol.readplan import WriteToken

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
        self._contract: SchemaContract | None = None
        self._quarantine: QuarantinedRows | None = None

    @property
    def quarantined(self) -> int:
        return 0 if self._quarantine is None else self._quarantine.count

    def run(self, files: Sequence[str], *, atomic: bool = False, resume: bool = False) -> None:
        """Raises what stopped it, after saying what is stored. Journals stay until all files are done: a resumed call
        names the same files, and passes over those that were."""
        if atomic and "-" in files:
            raise InvalidRequest(
                what="--atomic", reason="standard input cannot be read twice; write it to a file first"
            )
        if atomic and self.rejects.is_skipping:
            raise InvalidRequest(what="--atomic", reason="with --skip-bad no row is refused; give one of the two")
        if atomic:
            self._contract = SchemaContract.STRICT  # before the first row is sent no other may be kept aside
            self._check(files, resume=resume)
        journals = [self._journal(file, resume=resume) for file in files]
        with WriteProgress(files) as progress:
            for index, (file, journal) in enumerate(zip(files, journals, strict=True)):
                self._write(file, progress.of(file), journal, before=index)
        for journal in journals:
            journal.finish()

    def follow(self, folders: Sequence[str], stop: threading.Event | None = None) -> None:
        """Each file once it is whole, until the event, or Ctrl-C."""
        stopped, sizes, refused = stop or threading.Event(), dict[str, int](), set[str]()
        name = str(self.table.info.table_id)
        while not stopped.is_set():
            for file in find_files(folders, may_be_empty=True):
                try:
                    size = followed_size(file)
                except InvalidRequest as error:
                    if file not in refused:
                        note(str(error))
                    refused.add(file)
                    continue
                if size is None:
                    continue
                if sizes.get(file) == size and not WriteJournal.is_done(name, file, str(self.kind)):
                    before = self.rows
                    journal = self._journal(file, resume=WriteJournal.is_kept(name, file, str(self.kind)))
                    self._write(file, lambda _rows, _part: None, journal)
                    journal.finish()
                    WriteJournal.mark_done(name, file, str(self.kind))
                    note(f"{file}: {counted(self.rows - before, 'row')} written to {self.table.path}")
                sizes[file] = size
            stopped.wait(LOOK_S)

    def _check(self, files: Sequence[str], *, resume: bool) -> None:
        try:
            for file in files:
                job = FileWrite(self.table, self.kind, WriteJournal(None, 0), replace=self.replace)
                job.check(self._read(file, self.rejects), self.rejects)
        except LakewardError:
            note("nothing more is stored" if resume else f"nothing of {' '.join(files)} is stored")
            raise

    def _journal(self, file: str, *, resume: bool) -> WriteJournal:
        begin = WriteJournal.resume if resume else WriteJournal.begin
        return begin(str(self.table.info.table_id), file, str(self.kind))

    def _write(self, file: str, advance: Advance, journal: WriteJournal, before: int = 0) -> None:
        """`before`: how many files of the call are stored whole."""
        rejects = self._take_contract(file)
        job = FileWrite(self.table, self.kind, journal, replace=self.replace)
        try:
            job.run(self._read(file, rejects), rejects, advance)
        except (Exception, KeyboardInterrupt):
            note(_account(file, job, before))
            raise
        finally:
            self.rows += job.stored
            if job.token is not None:
                self.token = job.token if self.token is None else self.token.merged(job.token)

    def _take_contract(self, file: str) -> Rejects:
        """Where the file's rejects go; its new columns are added. Files with types of their own are strict."""
        kind = self.format or format_of(file)
        if self.rejects.is_skipping or kind not in (WriteFormat.CSV, WriteFormat.JSON):
            return self.rejects
        if self._contract is None:
            self._contract = load_contract(self.table)
        if self._contract is SchemaContract.EVOLVE and file != "-":
            self.table = add_columns(self.table, file, kind, self.shape)
        if self._contract is not SchemaContract.QUARANTINE:
            return self.rejects
        if self._quarantine is None:
            operation = "replace" if self.replace else str(self.kind)
            self._quarantine = QuarantinedRows(self.table, operation)
        return self._quarantine

    def _read(self, file: str, rejects: Rejects) -> Iterator[FileRows]:
        return read_file(file, self.format or format_of(file), self.table.info.schema, self.shape, rejects)


def _account(file: str, job: FileWrite, before: int) -> str:
    """The part of a file that was stored before its write stopped."""
    stored = job.before + job.stored
    if not stored:
        account = f"no row of {file} was acknowledged" if job.is_under_way else f"nothing of {file} is stored"
    else:
        last = "" if job.last is None else f", the last of them {job.last.short}"
        rest = "of those after it some may be" if job.is_under_way else "those after it are not"
        account = f"{counted(stored, 'row')} of {file} {'is' if stored == 1 else 'are'} stored{last}; {rest}"
    if before:
        account += f"; the files before it are, whole: {before}"
    if job.journal.path is None or not (stored or job.is_under_way or before):
        return account
    return f"{account}. --resume goes on from there, and stores nothing twice"
