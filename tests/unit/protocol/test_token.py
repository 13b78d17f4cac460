# SPDX-License-Identifier: Apache-2.0
"""A token from a file: read again when the file changes, kept while it cannot be read, handed on as a path and not as a
secret.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config import options
from lakeward.config.option import variable_name
from lakeward.errors import InvalidConfig
from lakeward.protocol.token import FILE_VARIABLE, TOKEN_VARIABLE, TokenSource


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "token"
    made.write_text("first\n")
    return made


def replace(file: Path, text: str) -> None:
    """As editors and mounted secrets do: another file in its place."""
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").rename(file)


def test_a_file_that_changes_is_read_again(file: Path) -> None:
    source = TokenSource.of(None, file)
    assert source.current() == "first"
    replace(file, "second\n")
    assert source.current() == "second"
    file.write_text("a third one")
    assert source.current() == "a third one"


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_that_is_gone_or_empty_for_a_moment_changes_nothing(file: Path, gone: bool) -> None:
    source = TokenSource.of(None, file)
    file.unlink() if gone else file.write_text("")
    assert source.current() == "first"
    file.write_text("second")
    assert source.current() == "second"


def test_a_file_that_cannot_be_read_at_the_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"client\.token-file") as caught:
        TokenSource.of(None, tmp_path / "nothing")
    assert str(tmp_path / "nothing") in str(caught.value)


def test_a_secret_comes_before_a_file(file: Path) -> None:
    assert TokenSource.of("given", file).current() == "given"
    assert TokenSource.of(None, None).current() is None
    assert TokenSource.of_process({TOKEN_VARIABLE: "given", FILE_VARIABLE: str(file)}).current() == "given"
    assert TokenSource.of_process({FILE_VARIABLE: str(file)}).current() == "first"
    assert TokenSource.of_process({FILE_VARIABLE: str(file) + "-not-here"}).current() is None


def test_processes_that_are_started_get_the_path_of_a_file_and_no_secret(file: Path) -> None:
    environment = {TOKEN_VARIABLE: "old"}
    TokenSource.of(None, file).share(environment)
    assert environment == {FILE_VARIABLE: str(file)}
    child = TokenSource.of_process(environment)
    replace(file, "second")
    assert child.current() == "second"
    TokenSource.of("given", None).share(environment)
    assert TokenSource.of_process(environment).current() == "given"
    before = dict(environment)
    TokenSource.of(None, None).share(environment)
    assert environment == before


def test_a_catalog_is_shown_the_token_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "mine")
    TokenSource("theirs").use_for("http://known.example/iceberg/")
    assert TokenSource.find_for("http://known.example/iceberg").current() == "theirs"
    assert TokenSource.find_for("http://other.example/iceberg").current() == "mine"


def test_the_variables_are_those_of_the_options() -> None:
    assert options.CLIENT_TOKEN.variable == TOKEN_VARIABLE
    assert variable_name(options.CLIENT_TOKEN_FILE.key) == FILE_VARIABLE
