# SPDX-License-Identifier: Apache-2.0
"""`lakeward sql` without a query: statements end with a semicolon; words with a dot in front are the shell's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lakeward.cli.files.journal import state_folder
from lakeward.cli.files.rowprint import ReadFormat, write_rows
from lakeward.cli.output import note, print_rows
from lakeward.cli.sql.sqlquery import run_alter, run_sql
from lakeward.errors import LakewardError
from lakeward.protocol.alterstatement import is_alter

if TYPE_CHECKING:
    from lakeward.client import Client

HELP = ".tables lists tables, .schema TABLE its columns, .as-of TIME reads history (.as-of alone: now), .quit ends"
WORDS = (
    "ALTER TABLE",
    "EXPLAIN ALTER TABLE",
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "count(*)",
)
_PART = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|;")
_KEPT_LINES = 1_000


def split_statements(text: str) -> tuple[list[str], str]:
    """Statements that end, and what is left behind the last semicolon. One in a text, a name or a comment ends
    nothing."""
    statements, start = [], 0
    for part in _PART.finditer(text):
        if part.group() == ";":
            statements.append(text[start : part.start()].strip())
            start = part.end()
    return [s for s in statements if s], text[start:]


class SqlShell:
    def __init__(
        self,
        client: Client,
        mode: str = "union",
        as_of: str | None = None,
        shown: ReadFormat = ReadFormat.TABLE,
        *,
        as_of_schema: bool = False,
        **options: str | None,
    ) -> None:
        """`options`: of every read, as `cut` and `lake`."""
        self.client, self.mode, self.as_of, self.shown, self.options = client, mode, as_of, shown, options
        self.as_of_schema = as_of_schema
        self._columns: dict[str, Sequence[str]] = {}

    def run(self) -> None:
        """Runs until .quit or the end of input. An error of a statement is printed and the shell continues; without a
        terminal it ends there."""
        if not sys.stdin.isatty():
            self.run_lines(sys.stdin)
            return
        self._prepare_terminal()
        note(f"Lakeward SQL at {self.client.url}. {HELP}.")
        waiting = ""
        while True:
            try:
                line = input("sql> " if not waiting else "...> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                waiting = ""
                print()
                continue
            if not waiting and line.strip().startswith("."):
                if not self._guarded(line.strip().rstrip(";")):
                    return
                continue
            statements, waiting = split_statements(f"{waiting}{line}\n")
            waiting = waiting if waiting.strip() else ""
            for statement in statements:
                self._guarded(statement)

    def run_lines(self, lines: Iterable[str]) -> None:
        """To their end, or .quit; the last statement needs no semicolon. Raises what is wrong."""
        waiting = ""
        for line in lines:
            if not waiting.strip() and line.strip().startswith("."):
                if not self.answer(line.strip().rstrip(";")):
                    return
                continue
            statements, waiting = split_statements(f"{waiting}{line}")
            for statement in statements:
                self.answer(statement)
        if waiting.strip():
            self.answer(waiting.strip())

    def answer(self, text: str) -> bool:
        """Runs a statement, or a word of the shell; False: it is to end. Raises what is wrong."""
        if is_alter(text):
            for line in run_alter(self.client, text):
                note(line)
            self._columns = {}
            return True
        if not text.startswith("."):
            past = self.as_of_schema and (self.as_of is not None or self.options.get("cut") is not None)
            result, notes = run_sql(self.client, text, self.mode, self.as_of, as_of_schema=past, **self.options)
            write_rows(result.schema, result.to_batches(), self.shown)
            for words in notes:
                note(words)
            return True
        word, _, rest = text.partition(" ")
        if word == ".tables":
            print_rows(("table",), [(name,) for name in self.client.list_tables()], empty="no tables")
        elif word == ".schema" and rest.strip():
            columns = self.client.show_table(rest.strip()).schema.columns
            print_rows(("column", "type"), [(c.name, str(c.type)) for c in columns])
        elif word == ".as-of":
            self.as_of = rest.strip() or None
        elif word in (".quit", ".exit"):
            return False
        else:
            note(HELP)
        return True

    def complete(self, text: str) -> list[str]:
        """Words, tables, and columns of tables that were named before, that begin so."""
        if not self._columns:
            with suppress(LakewardError):
                self._columns = {p: self.client.show_table(p).schema.names for p in self.client.list_tables()[:200]}
        names = [*self._columns, *sorted({c for columns in self._columns.values() for c in columns}), *WORDS]
        return [n for n in names if n.lower().startswith(text.lower())]

    def _guarded(self, text: str) -> bool:
        try:
            return self.answer(text)
        except LakewardError as error:
            note(f"lakeward: {error}")
            return True

    def _prepare_terminal(self) -> None:
        import atexit
        import readline

        history = state_folder().with_name("sql-history")
        history.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            readline.read_history_file(history)
        readline.set_history_length(_KEPT_LINES)
        atexit.register(readline.write_history_file, history)
        readline.set_completer_delims(" \t\n,()=")

        def completed(text: str, state: int) -> str | None:
            completions = self.complete(text)
            return completions[state] if state < len(completions) else None

        readline.set_completer(completed)
        readline.parse_and_bind("tab: complete")
