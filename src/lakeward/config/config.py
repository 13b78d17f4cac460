# SPDX-License-Identifier: Apache-2.0
"""Settings put together: file, then environment, then arguments, then a table's properties; later ones win."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from lakeward.config.option import Option, Scope
from lakeward.config.options import ALL, FAMILIES
from lakeward.config.shown import SHOWN, looks_secret, shown_value
from lakeward.config.sources import Setting, argument_settings, environment_settings, file_settings, property_settings
from lakeward.errors import InvalidOptionValue, UnknownOption

T = TypeVar("T")

DEFAULT = "default"
HIDDEN = "******"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """One option for people: its value as text (secrets as stars) and where it came from."""

    key: str
    text: str
    where: str
    option: Option[Any] | None = None


class Config:
    """Parsed settings. Immutable; values that were not given are the options' defaults."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        self._settings: dict[str, Setting] = {}
        self._values: dict[str, Any] = {}
        for setting in settings:
            self._values[setting.key] = parse_setting(setting)
            self._settings[setting.key] = setting

    def get(self, option: Option[T]) -> T:
        """The option's value, typed."""
        value: T = self._values.get(option.key, option.default)
        return value

    def is_set(self, option: Option[Any]) -> bool:
        return option.key in self._values

    def where(self, option: Option[Any]) -> str:
        """Where the value came from: `default`, `file PATH`, `environment NAME`, `argument` or `table property`."""
        setting = self._settings.get(option.key)
        return DEFAULT if setting is None else setting.where

    def below(self, prefix: str) -> dict[str, str]:
        """Settings of a family without its prefix: `below("datalake.iceberg.")`."""
        return {
            k.removeprefix(prefix): s.text for k, s in self._settings.items() if k.startswith(prefix) and k not in ALL
        }

    def for_table(self, properties: Mapping[str, str]) -> Config:
        """This configuration with a table's own `table.*` properties on top."""
        return Config(chain(self._settings.values(), property_settings(properties)))

    def with_arguments(self, arguments: Mapping[str, Any]) -> Config:
        return Config(chain(self._settings.values(), argument_settings(arguments)))

    def resolved(self, scopes: Iterable[Scope] = tuple(Scope)) -> list[Resolved]:
        """Every option of these scopes with its value and origin, then the families' keys that were given."""
        wanted = set(scopes)
        rows = [self._show(option) for option in ALL.values() if option.scope in wanted]
        others = [s for s in self._settings.values() if s.key not in ALL]
        return rows + [Resolved(key=s.key, text=_masked(s), where=s.where) for s in others]

    def settings(self) -> dict[str, str]:
        """The given settings as text. Passed to `resolve(arguments=...)` they give the same configuration."""
        return {key: setting.text for key, setting in self._settings.items()}

    def _show(self, option: Option[Any]) -> Resolved:
        text = option.spell(self.get(option)) if self.is_set(option) else option.default_text
        hidden = option.secret and self.is_set(option) and bool(text)
        return Resolved(key=option.key, text=HIDDEN if hidden else text, where=self.where(option), option=option)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.settings().items())))

    def __repr__(self) -> str:
        return f"Config({len(self._settings)} settings given)"


def resolve(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Config:
    """File < environment < arguments. Raises `UnknownOption`, `InvalidOptionValue`, `InvalidConfig`, naming where it
    stands.
    """
    variables = os.environ if environment is None else environment
    return Config(
        chain(file_settings(file, variables), environment_settings(variables), argument_settings(arguments or {}))
    )


def parse_setting(setting: Setting) -> Any:
    """The typed value; families' values stay text."""
    option = ALL.get(setting.key)
    if option is None:
        if any(family.matches(setting.key) for family in FAMILIES):
            return setting.text
        raise UnknownOption(where=setting.where, key=setting.key, nearest=find_nearest(setting.key))
    try:
        return option.kind.parse(setting.text)
    except ValueError as error:
        shown = HIDDEN if option.secret else setting.text
        raise InvalidOptionValue(
            where=setting.where, key=option.key, value=shown, reason=str(error), allowed=option.kind.allowed
        ) from None


def find_nearest(key: str, known: Iterable[str] = ALL) -> str | None:
    """The known key that looks most like this one, or ends in it, if any does."""
    keys = list(known)
    ending = next((k for k in sorted(keys, key=len) if k.endswith(f".{key}")), None)
    return ending or next(iter(difflib.get_close_matches(key, keys, n=1, cutoff=0.6)), None)


def _masked(setting: Setting) -> str:
    """Settings of a lake that are not on the list are not shown, nor what of Spark has a secret's name."""
    family, _, rest = setting.key.partition(".")
    _, _, name = rest.partition(".")
    if family == "lakes" and (name in ("format", "pool") or name.startswith("table.")):
        return setting.text
    shown = name in SHOWN if family in ("datalake", "lakes") else not looks_secret(setting.key)
    return shown_value(setting.text) if shown else HIDDEN
