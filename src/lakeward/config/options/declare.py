# SPDX-License-Identifier: Apache-2.0
"""How an option is declared: it is in `ALL` from then on."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, TypeVar

from lakeward.config.kinds import OptionKind
from lakeward.config.option import Option, Scope

T = TypeVar("T")

ALL: dict[str, Option[Any]] = {}
"""Key -> option, in the order of the files and within them."""

SECOND, MS = timedelta(seconds=1), timedelta(milliseconds=1)
SERVER, JOB, TABLE, CLIENT = Scope.SERVER, Scope.JOB, Scope.TABLE, Scope.CLIENT


def option(key: str, kind: OptionKind[T], default: str, help: str, scope: Scope, **more: Any) -> Option[T]:
    """`more`: further facts of `Option`."""
    return _add(Option(key=key, kind=kind, default=kind.parse(default), help=help, scope=scope, **more))


def optional(key: str, kind: OptionKind[T], unset: str, help: str, scope: Scope, **more: Any) -> Option[T | None]:
    """An option without a default; `unset` describes what applies then."""
    none: T | None = None
    return _add(Option(key=key, kind=kind, default=none, unset=unset, help=help, scope=scope, **more))


def _add(option: Option[T]) -> Option[T]:
    assert option.key not in ALL, f"{option.key} is there twice"
    assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", option.key), (
        f"{option.key} cannot be spelled as an environment variable"
    )
    ALL[option.key] = option
    return option
