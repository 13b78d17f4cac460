# SPDX-License-Identifier: Apache-2.0
"""Parses `ALTER TABLE database.table ...` into the message that the server takes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.model import FIRST, FIXED_FOREVER, Column, parse_leading_literal, parse_leading_type
from lakeward.protocol.tables import AlterTable

_ALTER = re.compile(r"\s*(EXPLAIN\s+)?ALTER\s+TABLE\b", re.IGNORECASE)
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|'(?:[^']|'')*'|[^\W\d]\w*|[(),.=;]|\S)")
ACTIONS = (
    "ADD COLUMN name type [DEFAULT literal] [COMMENT 'text'] [FIRST | AFTER other], RENAME COLUMN a TO b, "
    "DROP COLUMN a, ALTER COLUMN a [TYPE type | DROP NOT NULL | COMMENT 'text' | FIRST | AFTER other], "
    "SET ('key' = 'value'), RESET ('key'), with commas between them"
)


@dataclass(frozen=True)
class AlterStatement:
    """`change.dry_run` is set by EXPLAIN."""

    path: str
    change: AlterTable


def is_alter(text: str) -> bool:
    return _ALTER.match(text) is not None


def parse_alter(text: str) -> AlterStatement:
    """Columns are named as before the statement, in FIRST and AFTER as they are afterwards. Raises `InvalidRequest`."""
    return _Parser(text).statement()


@dataclass
class _Parser:
    text: str
    at: int = 0
    add: list[dict[str, Any]] = field(default_factory=list)
    rename: dict[str, str] = field(default_factory=dict)
    drop: list[str] = field(default_factory=list)
    widen: dict[str, str] = field(default_factory=dict)
    nullable: list[str] = field(default_factory=list)
    comments: dict[str, str | None] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str | None] = field(default_factory=dict)

    def statement(self) -> AlterStatement:
        is_dry = self._accept("EXPLAIN")
        self._expect("ALTER", "TABLE")
        database = self._name()
        if not self._accept("."):
            raise InvalidRequest(what=f"table {database}", reason="write it as database.table")
        path = f"{database}.{self._name()}"
        self._action()
        while self._accept(","):
            self._action()
        self._accept(";")
        if self.text[self.at :].strip():
            raise self._wrong(f"expected one of {ACTIONS}")
        change = AlterTable(
            add_columns=tuple(self.add),
            rename_columns=self.rename,
            drop_columns=tuple(self.drop),
            widen_columns=self.widen,
            nullable_columns=tuple(self.nullable),
            column_comments=self.comments,
            after=self.after,
            properties=self.properties,
            dry_run=is_dry,
        )
        return AlterStatement(path, change)

    def _action(self) -> None:
        word = self._token().upper()
        actions = {
            "ADD": self._add,
            "RENAME": self._rename,
            "DROP": self._drop,
            "ALTER": self._change,
            "MODIFY": self._change,
            "SET": self._set,
            "RESET": self._reset,
        }
        if word not in actions:
            raise self._wrong(f"expected one of {ACTIONS}")
        actions[word]()

    def _add(self) -> None:
        self._accept("COLUMN")
        name = self._path()
        kind, self.at = parse_leading_type(self.text, self.at)
        default = None
        if self._accept("DEFAULT"):
            literal, self.at = parse_leading_literal(self.text, self.at)
            default = literal.value_for(kind, name)
        comment = self._literal() if self._accept("COMMENT") else None
        self.add.append(Column(name=name, type=kind, comment=comment, default=default).to_json())
        self._place(name)

    def _rename(self) -> None:
        if not self._accept("COLUMN") and self._accept("TO"):
            raise InvalidRequest(what="ALTER TABLE ... RENAME TO", reason=f"a table's name is {FIXED_FOREVER}")
        old = self._path()
        self._expect("TO")
        self._once(self.rename, old, self._name())

    def _drop(self) -> None:
        self._accept("COLUMN")
        self.drop.append(self._path())

    def _change(self) -> None:
        self._accept("COLUMN")
        name = self._path()
        if self._accept("COMMENT"):
            self._once(self.comments, name, self._literal() or None)
        elif self._accept("DROP"):
            self._expect("NOT", "NULL")
            self.nullable.append(name)
        elif self._place(name):
            return
        else:
            if self._accept("SET"):
                self._expect("DATA")
            self._expect("TYPE")
            kind, self.at = parse_leading_type(self.text, self.at)
            self._once(self.widen, name, kind.sql)

    def _set(self) -> None:
        self._expect("(")
        while True:
            key = self._literal()
            self._expect("=")
            self._once(self.properties, key, self._literal())
            if not self._accept(","):
                break
        self._expect(")")

    def _reset(self) -> None:
        self._expect("(")
        self._once(self.properties, self._literal(), None)
        while self._accept(","):
            self._once(self.properties, self._literal(), None)
        self._expect(")")

    def _place(self, name: str) -> bool:
        if self._accept("FIRST"):
            self._once(self.after, name, FIRST)
        elif self._accept("AFTER"):
            self._once(self.after, name, self._name())
        else:
            return False
        return True

    def _once(self, changes: dict[str, Any], name: str, value: Any) -> None:
        if name in changes:
            raise InvalidRequest(what=f"ALTER TABLE, {name}", reason="the statement changes it twice in the same way")
        changes[name] = value

    def _name(self) -> str:
        token = self._token()
        if token[0] in '`"':
            return token[1:-1].replace(token[0] * 2, token[0])
        if not (token[0].isalpha() or token[0] == "_"):
            raise self._wrong("expected a name")
        return token

    def _path(self) -> str:
        """The name of a column, or the path of a field inside of one."""
        path = self._name()
        while self._accept("."):
            path += f".{self._name()}"
        return path

    def _literal(self) -> str:
        token = self._token()
        if token[0] != "'" or len(token) < 2:
            raise self._wrong("expected a text in single quotes")
        return token[1:-1].replace("''", "'")

    def _token(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self._wrong("the statement ends too early")
        self.at = match.end()
        return match.group(1)

    def _accept(self, word: str) -> bool:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match.group(1).upper() != word:
            return False
        self.at = match.end()
        return True

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._accept(word):
                raise self._wrong(f"expected {word}")

    def _wrong(self, reason: str) -> InvalidRequest:
        return InvalidRequest(what="ALTER TABLE", reason=f"{reason}, at {self.text[self.at :].strip()[:40]!r}")
