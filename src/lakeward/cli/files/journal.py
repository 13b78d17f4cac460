# SPDX-License-Identifier: Apache-2.0
"""How far the write of a file came, kept on this machine until it is done: what `--resume` goes on from.

One file per table, file and kind of put: a header, then a line for each chunk that the server acknowledged. A crash
between the two is no harm: the chunk is sent again under its writer and sequence, and the server has it already."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.errors import InvalidRequest


def state_folder() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(root) / "lakeward" / "writes"


@dataclass
class WriteJournal:
    """`path` None: nothing is kept (standard input cannot be read again)."""

    path: Path | None
    writer: int
    digests: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, table_id: str, file: str, kind: str) -> WriteJournal:
        """A new write of the file; what an older one left is forgotten."""
        writer = secrets.randbits(63)
        if file == "-":
            return cls(None, writer)
        path = _path(table_id, file, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"writer": writer, "file": file}) + "\n", encoding="utf-8")
        return cls(path, writer)

    @classmethod
    def resume(cls, table_id: str, file: str, kind: str) -> WriteJournal:
        """Raises `InvalidRequest` when there is nothing to go on from."""
        path = _path(table_id, file, kind)
        if file == "-" or not path.is_file():
            reason = "there is no write of it to this table that stopped on this machine; write it without --resume"
            raise InvalidRequest(what=f"file {file}", reason=reason)
        head, *digests = path.read_text(encoding="utf-8").splitlines()
        return cls(path, int(json.loads(head)["writer"]), digests)

    @staticmethod
    def is_kept(table_id: str, file: str, kind: str) -> bool:
        return _path(table_id, file, kind).is_file()

    @staticmethod
    def mark_done(table_id: str, file: str, kind: str) -> None:
        """For folders that are followed: this file as it is now was written whole."""
        _path(table_id, file, kind).with_suffix(".done").write_text(_stamp(file), encoding="utf-8")

    @staticmethod
    def is_done(table_id: str, file: str, kind: str) -> bool:
        mark = _path(table_id, file, kind).with_suffix(".done")
        return mark.is_file() and mark.read_text(encoding="utf-8") == _stamp(file)

    def add(self, digest: str) -> None:
        self.digests.append(digest)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(digest + "\n")

    def finish(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _path(table_id: str, file: str, kind: str) -> Path:
    name = hashlib.sha256(f"{table_id}\n{Path(file).resolve()}\n{kind}".encode()).hexdigest()[:32]
    return state_folder() / f"{name}.jsonl"


def _stamp(file: str) -> str:
    stat = Path(file).stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"
