# SPDX-License-Identifier: Apache-2.0
"""`lakeward table create --from`: shows the table that is proposed for a file, and the commands that follow."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from lakeward.cli.output import counted, note, print_json, print_rows

if TYPE_CHECKING:
    from lakeward.cli.files.filerows import FileShape
    from lakeward.cli.files.propose import Proposal


@dataclass(frozen=True)
class ProposedTable:
    """`given`: the table's options, with the key that is proposed."""

    table: str
    file: str
    proposal: Proposal
    given: dict[str, Any]
    shape: FileShape

    @property
    def sql(self) -> str:
        return self.proposal.sql

    @property
    def write_command(self) -> str:
        said = [*self.proposal.cells.options]
        said += ["--delimiter", self.shape.delimiter] if self.shape.delimiter else []
        said += ["--encoding", self.shape.encoding] if self.shape.encoding else []
        return shlex.join(["lakeward", "write", self.table, self.file, *said])

    def show(self, *, as_json: bool, is_silent: bool) -> None:
        proposal, key = self.proposal, self.given["primary_key"]
        if as_json:
            body = {"table": self.table, "columns": proposal.sql, "primary_key": key, "rows": proposal.rows}
            print_json({**body, "notes": proposal.notes, "write": self.write_command})
        if is_silent:
            return
        print_rows(("column", "type"), [(c.name, str(c.type)) for c in proposal.columns])
        key = key or "none: a log table, rows are only added (--primary-key names columns)"
        note(f"{counted(proposal.rows, 'row')} in {self.file}; primary key: {key}")
        if proposal.cells.options:
            note(f"cells are read with {proposal.cells.command_line}")
        for words in proposal.notes:
            note(words)

    def is_confirmed(self, *, as_json: bool) -> bool:
        return not as_json and sys.stdin.isatty() and typer.confirm(f"Make {self.table}?")

    def explain_next(self, *, freshness: str | None, no_lake: bool) -> None:
        note("nothing is made yet. --yes makes it; to change columns, say them in place of --from:")
        options_text, said = self.given, list[str]()
        for option, value in (
            ("--primary-key", options_text["primary_key"]),
            ("--partition-by", options_text["partition_by"]),
            ("--buckets", options_text["buckets"] if options_text["buckets"] != 1 else None),
            ("--bucket-key", options_text["bucket_key"]),
            ("--freshness", freshness),
        ):
            said += [option, str(value)] if value else []
        for key, value in options_text["properties"].items():
            said += ["--property", f"{key}={value}"]
        said += ["--no-lake"] if no_lake else []
        said += ["--if-not-exists"] if options_text["if_not_exists"] else []
        note(f"  {shlex.join(['lakeward', 'table', 'create', self.table, self.sql, *said])}")


def propose_table(table: str, file: str, given: dict[str, Any], shape: FileShape) -> ProposedTable:
    """Fills in `given["primary_key"]` where none was specified. Raises `InvalidRequest`."""
    from lakeward.cli.files.propose import propose
    from lakeward.cli.files.rowfiles import format_of

    proposal = propose(file, format_of(file), shape)
    if given["primary_key"] is None:  # an empty one says that there is to be none
        given["primary_key"] = _key(proposal, given["partition_by"])
    return ProposedTable(table, file, proposal, given, shape)


def _key(proposal: Proposal, partition_by: str | None) -> str | None:
    """Columns that decide the partition belong to every key. As option, names are parted by commas."""
    if proposal.key is None:
        return None
    from lakeward.client.columns import as_names
    from lakeward.model import PartitionKey

    columns = [c.name for c in proposal.columns]
    more = [PartitionKey.parse(name, columns).column for name in as_names(partition_by)]
    return ",".join(dict.fromkeys([proposal.key, *more]))
