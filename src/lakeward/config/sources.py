# SPDX-License-Identifier: Apache-2.0
"""Where settings come from: `lakeward.toml`, environment variables, arguments, table properties. Each gives key ->
text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeward.config.option import PREFIX, key_of_variable, variable_name
from lakeward.config.options import ALL
from lakeward.errors import InvalidConfig

FILE_NAME = "lakeward.toml"
FILE_VARIABLE = "LAKEWARD_CONFIG"
_SHORT = {option.variable: option.key for option in ALL.values() if option.variable}


@dataclass(frozen=True)
class Setting:
    """A value as it was written, and where."""

    key: str
    text: str
    where: str


def file_settings(file: Path | None, environment: Mapping[str, str]) -> Iterator[Setting]:
    """Settings of the file that was named, by argument or `LAKEWARD_CONFIG`, else of `lakeward.toml` here if there is
    one.
    """
    named = file or (Path(environment[FILE_VARIABLE]) if environment.get(FILE_VARIABLE) else None)
    settings_file = named or Path(FILE_NAME)
    if named is None and not settings_file.exists():
        return
    try:
        body = tomllib.loads(settings_file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfig(where=str(settings_file), reason=f"it cannot be read: {error}") from error
    for key, value in _flatten("", body):
        yield Setting(key, _spell(value, f"{settings_file}, {key}"), f"file {settings_file}")


def environment_settings(environment: Mapping[str, str]) -> Iterator[Setting]:
    """Settings from `LAKEWARD_...` variables. A name without `__` is ignored, unless it is a misspelled option."""
    for name in sorted(environment):
        if name in _SHORT:
            yield Setting(_SHORT[name], environment[name], f"environment {name}")
        elif name.startswith(PREFIX) and "__" in name:
            yield Setting(key_of_variable(name), environment[name], f"environment {name}")
        elif name.startswith(PREFIX):
            _refuse_near_miss(name)


def argument_settings(arguments: Mapping[str, Any]) -> Iterator[Setting]:
    """Settings of a call: `{"server.port": 9050}`. None means: not given."""
    for key, value in arguments.items():
        if value is not None:
            yield Setting(key, _spell(value, f"argument {key}"), "argument")


def property_settings(properties: Mapping[str, str]) -> Iterator[Setting]:
    """The `table.*` properties of a table; its other properties are its owner's and the lake's."""
    for key, value in properties.items():
        if key.startswith("table."):
            yield Setting(key, value, "table property")


def _flatten(prefix: str, body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if isinstance(value, Mapping):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _spell(value: Any, where: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float() | Path():
            return str(value)
        case list() | tuple() if all(isinstance(v, str) and "," not in v for v in value):
            return ",".join(value)
    raise InvalidConfig(where=where, reason=f"{value!r} is no text, number, boolean or list of texts without commas")


def _refuse_near_miss(name: str) -> None:
    loose = re.sub("_+", "_", name)
    for key in ALL:
        if re.sub("_+", "_", variable_name(key)) == loose:
            raise InvalidConfig(
                where=f"environment {name}", reason=f"write {variable_name(key)}: a dot of a key is two underscores"
            )
