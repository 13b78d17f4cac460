# SPDX-License-Identifier: Apache-2.0
"""Lake properties that somebody says of a table: which names a format has readers for, and which values they take."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakeward.errors import InvalidTable
from lakeward.model.table import TablePath


@dataclass(frozen=True)
class Allowed:
    """Values, as a pattern and in words. Case does not matter."""

    pattern: str
    words: str

    @classmethod
    def of(cls, *values: str) -> Allowed:
        return cls("|".join(map(re.escape, values)), f"{', '.join(values[:-1])} or {values[-1]}")

    def check(self, path: TablePath, key: str, value: str) -> None:
        """Raises `InvalidTable`."""
        if not re.fullmatch(self.pattern, value.strip(), re.IGNORECASE):
            raise InvalidTable(table=str(path), field=key, value=value, reason=f"allowed is {self.words}")


ANY = Allowed(r"(?s:.*)", "anything")
SWITCH = Allowed.of("true", "false")
NUMBER = Allowed(r"\d+", "a whole number")
HISTORY = {"history.expire.max-snapshot-age-ms": NUMBER, "history.expire.min-snapshots-to-keep": NUMBER}


def check_allowed(
    path: TablePath,
    prefix: str,
    properties: Mapping[str, str],
    said: Collection[str],
    allowed: Mapping[str, Allowed],
) -> None:
    """`allowed`: names less the prefix; one that ends in a dot is what names begin with. Raises `InvalidTable`."""
    for key in (k for k in said if k.startswith(prefix) and k in properties):
        name = key.removeprefix(prefix)
        found = [a for n, a in allowed.items() if n == name or (n.endswith(".") and name.startswith(n))]
        if not found:
            names = ", ".join(f"{prefix}{n}{'*' if n.endswith('.') else ''}" for n in allowed)
            reason = f"rounds do not know it; allowed are {names}"
            raise InvalidTable(table=str(path), field=key, value=properties[key], reason=reason)
        found[0].check(path, key, properties[key])
