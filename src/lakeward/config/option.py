# SPDX-License-Identifier: Apache-2.0
"""An option: its key, kind, default and one line of help; and how its key is spelled as an environment variable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from lakeward.config.kinds import OptionKind

T_co = TypeVar("T_co", covariant=True)

PREFIX = "LAKEWARD_"


class Scope(StrEnum):
    """Who reads an option. Table options are properties of a table; set on the server they are the default of new
    tables.
    """

    SERVER = "server"
    JOB = "job"
    TABLE = "table"
    CLIENT = "client"


@dataclass(frozen=True, kw_only=True)
class Option(Generic[T_co]):
    """`unset` says what happens without a value, where the default is None. `fluss` says where Fluss differs.

    `alterable`: a table's property that ALTER may change. `variable`: a short environment variable beside the regular
    one.
    """

    key: str
    kind: OptionKind[Any]
    default: T_co
    help: str
    scope: Scope
    unset: str = ""
    fluss: str | None = None
    alterable: bool = True
    secret: bool = False
    variable: str | None = None

    @property
    def default_text(self) -> str:
        return self.unset if self.default is None else self.kind.render(self.default)

    def spell(self, value: Any) -> str:
        """A value as text that `parse` reads back. Callers that show a secret replace it with stars."""
        return "" if value is None else self.kind.render(value)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Keys below a prefix that are handed on as they are: a lake's own settings, Spark's. `<format>` and `<lake>`
    stand for one word.
    """

    prefix: str
    help: str
    scope: Scope

    def matches(self, key: str) -> bool:
        pattern = re.escape(self.prefix).replace("<format>", "[a-z0-9]+").replace("<lake>", "[^.]+")
        return re.match(pattern + ".", key) is not None


def variable_name(key: str) -> str:
    """The rule: `LAKEWARD_`, then the key in capitals with `.` written `__` and `-` written `_`. No key has
    `_` in it.
    """
    return PREFIX + key.upper().replace(".", "__").replace("-", "_")


def key_of_variable(name: str) -> str:
    """The inverse of `variable_name`."""
    return name.removeprefix(PREFIX).lower().replace("__", ".").replace("_", "-")
