# SPDX-License-Identifier: Apache-2.0
"""File < environment < argument < table property, and where a value came from."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward.config import Scope, options, resolve
from lakeward.config.config import HIDDEN
from lakeward.config.option import key_of_variable, variable_name
from lakeward.errors import InvalidConfig, InvalidOptionValue, UnknownOption


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "lakeward.toml"
    made.write_text(
        """
        jobs.expected = ["etl-1", "etl-2"]
        [server]
        port = 1
        host = "127.0.0.9"
        restored = true
        [table.datalake]
        freshness = "1 min"
        [datalake]
        format = "iceberg"
        [datalake.iceberg]
        warehouse = "s3://bucket/lake"
        "s3.secret-access-key" = "very secret"
        """
    )
    return made


def test_later_sources_win_and_each_value_knows_its_own(file: Path) -> None:
    config = resolve(
        file=file,
        environment={"LAKEWARD_SERVER__PORT": "2", "LAKEWARD_SERVER__HOST": "::1"},
        arguments={"server.port": 3},
    )
    assert config.get(options.SERVER_PORT) == 3
    assert config.where(options.SERVER_PORT) == "argument"
    assert config.get(options.SERVER_HOST) == "::1"
    assert config.where(options.SERVER_HOST) == "environment LAKEWARD_SERVER__HOST"
    assert config.get(options.SERVER_RESTORED) is True
    assert config.where(options.SERVER_RESTORED) == f"file {file}"
    assert config.get(options.SERVER_DISK_RESERVE) == 256 << 20
    assert config.where(options.SERVER_DISK_RESERVE) == "default"
    assert config.get(options.JOBS_EXPECTED) == ("etl-1", "etl-2")


def test_a_table_property_is_above_the_servers_default(file: Path) -> None:
    config = resolve(file=file, environment={})
    assert config.get(options.TABLE_DATALAKE_FRESHNESS) == timedelta(minutes=1)
    mine = config.for_table(
        {"table.datalake.freshness": "10 s", "iceberg.write.format.default": "parquet", "owner": "me"}
    )
    assert mine.get(options.TABLE_DATALAKE_FRESHNESS) == timedelta(seconds=10)
    assert mine.where(options.TABLE_DATALAKE_FRESHNESS) == "table property"
    assert mine.get(options.TABLE_LOG_TTL) == timedelta(days=7)


def test_a_lakes_settings_lose_their_prefix_and_secrets_are_not_shown(file: Path) -> None:
    config = resolve(file=file, environment={"LAKEWARD_TOKEN": "hush"})
    assert config.below("datalake.iceberg.") == {"warehouse": "s3://bucket/lake", "s3.secret-access-key": "very secret"}
    shown = {r.key: r.text for r in config.resolved()}
    assert shown["datalake.iceberg.s3.secret-access-key"] == HIDDEN
    assert shown["datalake.iceberg.warehouse"] == "s3://bucket/lake"
    assert shown["client.token"] == HIDDEN
    assert "very secret" not in repr(config)
    assert "hush" not in repr(config.resolved())
    assert config.get(options.CLIENT_TOKEN) == "hush"


def test_every_option_is_listed_once_in_its_scope() -> None:
    shown = [r.key for scope in Scope for r in resolve(environment={}).resolved([scope])]
    assert sorted(shown) == sorted(options.ALL)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"LAKEWARD_TABLE__DATALAKE__FRESNESS": "1 s"}, ["table.datalake.fresness", "table.datalake.freshness"]),
        ({"LAKEWARD_SERVER__PROT": "1"}, ["server.prot", "server.port"]),
        ({"LAKEWARD_NOTHING__LIKE__IT": "1"}, ["nothing.like.it"]),
    ],
)
def test_an_unknown_key_names_the_nearest(environment: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UnknownOption) as raised:
        resolve(environment=environment)
    assert all(word in str(raised.value) for word in [*words, next(iter(environment))])


def test_a_variable_with_one_underscore_too_few_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidConfig, match="LAKEWARD_LOG__SEGMENT__FILE_SIZE"):
        resolve(environment={"LAKEWARD_LOG_SEGMENT_FILE_SIZE": "1 mb"})
    resolve(environment={"LAKEWARD_SOMETHING_ELSE": "of other programs"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.port", "70000"),
        ("table.log.ttl", "7"),
        ("table.log.fsync", "maybe"),
        ("server.restored", "yes"),
        ("tiering.round.max-age", "3 d"),
    ],
)
def test_a_wrong_value_names_key_value_place_and_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(InvalidOptionValue) as raised:
        resolve(environment={}, arguments={key: value})
    error = raised.value
    assert (error.key, error.value, error.where) == (key, value, "argument")
    assert error.allowed == options.ALL[key].kind.allowed
    assert error.allowed in str(error)


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(InvalidOptionValue) as raised:
        resolve(environment={}, arguments={"server.tokens": "ops:admin:hush,,"})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "body", ["port = ", "[server]\nport = 2001-01-01", '[server]\ntokens = ["a,b"]', '[server]\ntokens = [["x"]]']
)
def test_a_file_that_cannot_be_read_says_where(tmp_path: Path, body: str) -> None:
    broken = tmp_path / "lakeward.toml"
    broken.write_text(body)
    with pytest.raises(InvalidConfig, match=r"lakeward\.toml"):
        resolve(file=broken, environment={})


def test_a_named_file_must_exist_and_the_default_one_need_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(environment={}).settings() == {}
    with pytest.raises(InvalidConfig, match=r"nowhere\.toml"):
        resolve(environment={"LAKEWARD_CONFIG": "nowhere.toml"})
    (tmp_path / "lakeward.toml").write_text('server.host = "::1"')
    assert resolve(environment={}).get(options.SERVER_HOST) == "::1"


def test_none_as_an_argument_means_not_given() -> None:
    given: dict[str, Any] = {"server.port": None, "server.data-dir": Path("here")}
    config = resolve(environment={}, arguments=given)
    assert config.where(options.SERVER_PORT) == "default"
    assert config.get(options.SERVER_DATA_DIR) == Path("here")


def test_every_key_has_one_variable_and_back() -> None:
    names = {variable_name(key): key for key in options.ALL}
    assert len(names) == len(options.ALL)
    assert {key_of_variable(name): key for name, key in names.items()} == {key: key for key in options.ALL}
    assert variable_name("table.datalake.freshness") == "LAKEWARD_TABLE__DATALAKE__FRESHNESS"
    assert variable_name("log.segment.file-size") == "LAKEWARD_LOG__SEGMENT__FILE_SIZE"
