# SPDX-License-Identifier: Apache-2.0
"""Any value of any option survives its text, in a file, in the environment and as an argument."""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.config import Option, resolve
from lakeward.config.kinds import boolean, choice, duration, integer, path, ratio, size, text, word_list
from lakeward.config.option import key_of_variable, variable_name
from lakeward.config.options import ALL
from lakeward.errors import InvalidConfig

WORDS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=","), min_size=1, max_size=12)
DURATIONS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000))


@given(DURATIONS)
def test_durations_survive_their_text(value: timedelta) -> None:
    assert duration().parse(duration().render(value)) == value


@given(st.integers(0, 2**50))
def test_sizes_survive_their_text(value: int) -> None:
    assert size().parse(size().render(value)) == value


@given(st.integers(-(10**17), 10**17), st.floats(0, 1), st.booleans(), st.lists(WORDS))
def test_other_values_survive_their_text(number: int, share: float, flag: bool, words: list[str]) -> None:
    assert integer().parse(integer().render(number)) == number
    assert ratio().parse(ratio().render(share)) == share
    assert boolean().parse(boolean().render(flag)) is flag
    assert word_list().parse(word_list().render(tuple(words))) == tuple(words)


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_value_error(given_text: str) -> None:
    for kind in (duration(), size(), integer(), ratio(), boolean(), word_list(), text(), path()):
        try:
            value = kind.parse(given_text)
        except ValueError:
            continue
        assert kind.parse(kind.render(value)) == value  # type: ignore[arg-type]


def values_of(option: Option[Any]) -> st.SearchStrategy[str]:
    """Texts that an option may be given, found by what its kind lets through."""
    kind = option.kind
    candidates: st.SearchStrategy[str] = {
        "duration": DURATIONS.map(duration().render),
        "size": st.integers(0, 4 << 30).map(size().render),
        "integer": st.integers(-200, 70_000).map(str),
        "number": st.floats(0, 1).map(repr),
        "boolean": st.sampled_from(["true", "false"]),
        "text": WORDS,
        "path": WORDS,
        "list": st.lists(WORDS, max_size=3).map(",".join),
        "choice": st.sampled_from(kind.allowed.split(", ")),
    }[kind.name]

    def fits(candidate: str) -> bool:
        try:
            kind.parse(candidate)
        except ValueError:
            return False
        return True

    return candidates.filter(fits)


@st.composite
def settings_given(draw: st.DrawFn) -> dict[str, str]:
    keys = draw(st.lists(st.sampled_from(sorted(ALL)), unique=True, max_size=6))
    return {key: draw(values_of(ALL[key])) for key in keys}


@given(settings_given(), settings_given(), settings_given())
def test_a_configuration_survives_every_source_and_later_ones_win(
    in_file: dict[str, str], in_environment: dict[str, str], in_arguments: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lakeward.toml"
        file.write_text("\n".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in in_file.items()))
        environment = {variable_name(key): value for key, value in in_environment.items()}
        config = resolve(file=file, environment=environment, arguments=in_arguments)
    for key, option in ALL.items():
        texts = {**in_file, **in_environment, **in_arguments}
        assert config.get(option) == (option.kind.parse(texts[key]) if key in texts else option.default)
        where = (
            "argument"
            if key in in_arguments
            else "environment"
            if key in in_environment
            else "file"
            if key in in_file
            else "default"
        )
        assert config.where(option).startswith(where)
    assert resolve(environment={}, arguments=config.settings()) == config
    assert resolve(environment={variable_name(k): v for k, v in config.settings().items()}) == config


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=3))
def test_any_arguments_resolve_or_are_refused_in_words(arguments: dict[str, str]) -> None:
    try:
        resolve(environment={}, arguments=arguments)
    except InvalidConfig as error:
        message = str(error)
    else:
        message = "fine"
    assert message


@given(
    st.lists(
        st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1).filter(
            lambda w: w.strip("-") == w and "--" not in w
        ),
        min_size=2,
    )
)
def test_a_key_survives_its_variable(parts: list[str]) -> None:
    key = ".".join(parts)
    assert key_of_variable(variable_name(key)) == key


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("given_text", ["red", "RED", " Red "])
def test_choices_take_any_case(given_text: str) -> None:
    assert choice(Colour).parse(given_text) is Colour.RED
