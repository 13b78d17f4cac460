# SPDX-License-Identifier: Apache-2.0
"""What is read without typer is read as typer reads it, for every command; what is not plain is left to it."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from inspect import signature
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from lakeward.cli.commands import COMMANDS
from lakeward.cli.plaincall import find_call

Seen = list[dict[str, Any]]


def recorder(command: Callable[..., Any], seen: Seen) -> Callable[..., Any]:
    @functools.wraps(command)
    def record(**given: Any) -> None:
        bound = signature(command).bind(**given)
        bound.apply_defaults()
        seen.append({name: value or None for name, value in bound.arguments.items()})

    return record


def recorded(app: typer.Typer, seen: Seen) -> typer.Typer:
    """The same commands, which only keep what they were called with."""
    copy = typer.Typer(name=app.info.name)
    copy.callback()(lambda: None)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        copy.add_typer(recorded(group.typer_instance, seen), name=group.name)
    for command in app.registered_commands:
        assert command.callback is not None
        copy.command(command.name)(recorder(command.callback, seen))
    return copy


def whole_app() -> typer.Typer:
    app = typer.Typer()
    for module in dict.fromkeys(command.module for command in COMMANDS):
        importlib.import_module(module).register(app)
    return app


SEEN: Seen = []
APP = recorded(whole_app(), SEEN)


def names(app: typer.Typer, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for command in app.registered_commands:
        yield (*before, str(command.name))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from names(group.typer_instance, (*before, str(group.name)))


VALUES = ("d.t", "a=b", "", "7", "1.5", "-1", "-", "1e3", "lake", "json", "ü", "_", "9" * 17, "nan", " 4", "1_0", "--")


def options(command: tuple[str, ...]) -> list[str]:
    node = reduce(lambda group, name: group.commands[name], command, TYPER)
    return ["--help", "--unknown", *(word for field in node.params for word in (*field.opts, *field.secondary_opts))]


TYPER: Any = typer.main.get_command(APP)
OPTIONS = {command: options(command) for command in sorted(names(APP))}


@st.composite
def calls(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(sorted(OPTIONS)))
    option, value = st.sampled_from(OPTIONS[command]), st.sampled_from(VALUES)
    words = st.one_of(option, value, st.builds("{} {}".format, option, value), st.builds("{}={}".format, option, value))
    return [*command, *" ".join(draw(st.lists(words, max_size=4))).split(" ")]


def kept(call: Callable[[], Any]) -> dict[str, Any] | None:
    SEEN.clear()
    with contextlib.suppress(SystemExit):
        call()
    return SEEN[-1] if SEEN else None


def by_typer(arguments: Sequence[str]) -> dict[str, Any] | None:
    return kept(lambda: TYPER(args=list(arguments), standalone_mode=True))


@given(arguments=calls())
def test_it_is_read_as_typer_reads_it(arguments: list[str]) -> None:
    call = find_call(APP, arguments)
    assert call is None or kept(call) == by_typer(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tier-now", "d.t", "--server", "http://127.0.0.1:9050", "--limit", "3.5", "--json"],
        ["status"],
        ["table", "create", "d.t", "id BIGINT", "--property", "a=b", "--property=c=d", "--no-lake"],
        ["read", "d.t", "--limit", "3"],
        ["rounds", "--limit=5"],
    ],
    ids=" ".join,
)
def test_what_people_write_is_plain(arguments: list[str]) -> None:
    call = find_call(APP, arguments)
    assert call is not None
    assert kept(call) == by_typer(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["tier-now"],
        ["tier-now", "--help"],
        ["tier-now", "d.t", "d.u"],
        ["tier-now", "d.t", "--limit"],
        ["tier-now", "d.t", "--limit", "soon"],
        ["tier-now", "d.t", "--limit", "-1"],
        ["tier-now", "d.t", "--json=1"],
        ["tier-now", "d.t", "--serv", "x"],
        ["tiernow", "d.t"],
        ["table"],
        ["verify", "d.t", "--sample", "2"],
    ],
    ids=" ".join,
)
def test_the_rest_is_left_to_typer(arguments: list[str]) -> None:
    assert find_call(APP, arguments) is None
