# SPDX-License-Identifier: Apache-2.0
"""A call in plain words, read by the command's own signature. Typer reads the rest (help, completion, every mistake):
its reading loads pydantic, which takes longer than a small command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import Parameter, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

PLAIN: dict[Any, Callable[[str], Any]] = {str: str, Path: Path, int: int, float: float}
NUMBERS = {int: re.compile(r"[0-9]{1,15}"), float: re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")}
SHOWN = {"default", "param_decls", "help", "hidden", "metavar", "show_default", "rich_help_panel"}
COMPLETED = {"autocompletion", "shell_complete"}
"""How a parameter is shown, called and completed. Its other properties must be as typer makes them, but the range."""


class _NotPlain(Exception):
    pass


@dataclass(frozen=True)
class _Field:
    name: str
    kind: Any
    is_list: bool
    is_option: bool
    words: dict[str, bool]
    """An option's parameter name and, for a flag, the value that it sets."""
    least: float | None
    most: float | None

    def value(self, word: str) -> Any:
        if isinstance(self.kind, type) and issubclass(self.kind, Enum):
            if word not in [choice.value for choice in self.kind]:
                raise _NotPlain
            return self.kind(word)
        if self.kind not in PLAIN or (self.kind in NUMBERS and not NUMBERS[self.kind].fullmatch(word)):
            raise _NotPlain
        value = PLAIN[self.kind](word)
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            raise _NotPlain
        return value


def find_call(app: typer.Typer, arguments: Sequence[str]) -> Callable[[], Any] | None:
    """The called command with its arguments, or None: typer has to read them."""
    try:
        command, rest = _command(app, list(arguments))
        given = _read(list(_fields(command)), rest)
        signature(command).bind(**given)
    except (_NotPlain, TypeError):
        return None
    return lambda: command(**given)


def _command(app: typer.Typer, arguments: list[str]) -> tuple[Callable[..., Any], list[str]]:
    if not arguments:
        raise _NotPlain
    for group in app.registered_groups:
        if group.name == arguments[0] and group.typer_instance is not None:
            return _command(group.typer_instance, arguments[1:])
    for command in app.registered_commands:
        if command.name == arguments[0] and command.callback is not None:
            return command.callback, arguments[1:]
    raise _NotPlain


def _fields(command: Callable[..., Any]) -> Iterator[_Field]:
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in signature(command).parameters.items():
        hint = hints[name]
        if get_origin(hint) is not Annotated:
            raise _NotPlain
        kind, info = get_args(hint)
        is_option = isinstance(info, type(typer.Option()))
        usual = vars(typer.Option() if is_option else typer.Argument())
        ruled = {key for key, value in vars(info).items() if value != usual[key]} - SHOWN - COMPLETED - {"min", "max"}
        if ruled or parameter.kind is not Parameter.POSITIONAL_OR_KEYWORD:
            raise _NotPlain
        if get_origin(kind) in (Union, UnionType):
            kind = next(k for k in get_args(kind) if k is not type(None))
        is_list = get_origin(kind) is list
        words = _words(name, kind, info) if is_option else {}
        yield _Field(name, get_args(kind)[0] if is_list else kind, is_list, is_option, words, info.min, info.max)


def _words(name: str, kind: Any, info: Any) -> dict[str, bool]:
    """Typer keeps the first word as the default where a parameter is declared by its annotation."""
    declared = [word for word in (info.default, *info.param_decls) if isinstance(word, str)]
    if not declared:
        word = name.replace("_", "-")
        return {f"--{word}": True, **({f"--no-{word}": False} if kind is bool else {})}
    return {w: at == 0 for words in declared for at, w in enumerate(words.split("/"))}


def _read(fields: list[_Field], arguments: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    places = [field for field in fields if not field.is_option]
    waiting = iter(arguments)
    for word in waiting:
        called, equals, value = word.partition("=")
        if not word.startswith("-"):
            field, value = _place(places, given), word
        else:
            field = next((f for f in fields if called in f.words), None)
            if field is not None and field.kind is bool and not equals:
                given[field.name] = field.words[called]
                continue
            value = value if equals else next(waiting, "-")
        if field is None or field.kind is bool or (value.startswith("-") and not equals):
            raise _NotPlain
        if field.is_list:
            given.setdefault(field.name, []).append(field.value(value))
        else:
            given[field.name] = field.value(value)
    return given


def _place(places: list[_Field], given: dict[str, Any]) -> _Field | None:
    return next((field for field in places if field.is_list or field.name not in given), None)
