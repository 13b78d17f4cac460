# SPDX-License-Identifier: Apache-2.0
"""Named lakes in the configuration: `[lakes.NAME]`, beside or in place of `datalake.format`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config import resolve
from lakeward.config.lake import LakeConfig, load_lake_config, load_lakes
from lakeward.config.tables import check_properties, lakes_of, side_properties
from lakeward.errors import InvalidConfig, InvalidOptionValue, InvalidTable, UnknownOption
from lakeward.model import SideName


def lakes(**arguments: str) -> dict[str, LakeConfig]:
    return load_lakes(resolve(environment={}, arguments=arguments))


def test_a_file_names_lakes_with_settings_pool_and_defaults(tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text(
        'datalake.default-lake = "main"\n[lakes.main]\nformat = "iceberg"\nwarehouse = "file:///w"\n'
        '[lakes.finance]\nformat = "paimon"\npool = "slow"\ndatabases = ["fin*", "books"]\ns3.endpoint = "http://m"\n'
        '[lakes.finance.table.datalake]\nfreshness = "10 min"\n'
    )
    main, finance = load_lakes(resolve(file=file, environment={})).values()
    assert main == LakeConfig(name="main", format="iceberg", enabled=True, settings={"warehouse": "file:///w"})
    assert (finance.name, finance.format, finance.settings) == ("finance", "paimon", {"s3.endpoint": "http://m"})
    assert [finance.is_open_to(d) for d in ("finance", "books", "shop")] == [True, True, False]
    assert main.is_open_to("shop")
    assert finance.defaults == {"table.datalake.freshness": "10 min", "table.datalake.pool": "slow"}


def test_the_short_way_is_the_lake_called_default_and_comes_first() -> None:
    both = lakes(**{"lakes.a.format": "memory", "datalake.format": "iceberg", "datalake.iceberg.uri": "x"})
    assert list(both) == ["default", "a"]
    assert both["default"] == LakeConfig(format="iceberg", enabled=True, settings={"uri": "x"})
    assert list(lakes(**{"lakes.only.format": "memory"})) == ["only"]
    assert list(lakes(**{"lakes.a.format": "memory", "lakes.b.format": "memory", "datalake.default-lake": "b"})) == [
        "b",
        "a",
    ]
    config = resolve(environment={}, arguments={"lakes.only.format": "memory", "datalake.enabled": "false"})
    only = load_lake_config(config)
    assert only is not None
    assert not only.enabled


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lakes.a.warehouse": "w"}, r"lakes\.a.*format"),
        ({"lakes.A_b.format": "memory"}, "small letters"),
        ({"lakes.a.format": "memory", "lakes.b.format": "memory"}, r"several lakes \(a, b\)"),
        ({"lakes.a.format": "memory", "datalake.default-lake": "b"}, "no lake is called 'b'; there are: a"),
        ({"lakes.default.format": "memory", "datalake.format": "iceberg"}, "keep one of the two"),
        ({"lakes.a.format": "memory", "lakes.a.table.log.ttl": "1 d"}, "no default of a lake"),
        ({"lakes.a.format": "memory", "lakes.a.table.datalake.lakes": "a"}, "no default of a lake"),
    ],
)
def test_a_half_written_lake_is_refused_in_words(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        lakes(**arguments)


def test_a_default_that_makes_no_sense_names_its_lake() -> None:
    with pytest.raises(InvalidOptionValue, match=r"lakes\.a.*freshness"):
        lakes(**{"lakes.a.format": "memory", "lakes.a.table.datalake.freshness": "soon"})
    with pytest.raises(UnknownOption, match=r"lakes\.a"):
        lakes(**{"lakes.a.format": "memory", "lakes.a.table.datalake.nope": "1"})


def test_secrets_of_a_named_lake_are_not_shown() -> None:
    arguments = {"lakes.a.format": "iceberg", "lakes.a.s3.secret-access-key": "hush", "lakes.a.uri": "http://c"}
    shown = {r.key: r.text for r in resolve(environment={}, arguments=arguments).resolved()}
    assert (shown["lakes.a.format"], shown["lakes.a.uri"]) == ("iceberg", "http://c")
    assert shown["lakes.a.s3.secret-access-key"] == "******"


def test_a_table_names_its_lakes_and_what_one_side_wants() -> None:
    properties = {"table.datalake.lakes": "main, finance", "table.datalake.lakes.finance.freshness": "1 h"}
    check_properties("db.t", properties)
    assert lakes_of(properties) == ("main", "finance")
    assert side_properties(properties, SideName("finance")) == {"table.datalake.freshness": "1 h"}
    assert side_properties(properties, SideName("main")) == {}
    assert lakes_of({}) == ()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"table.datalake.lakes": "a, a"}, "named twice"),
        ({"table.datalake.lakes": "a", "table.datalake.lakes.b.freshness": "1 s"}, "no side in lake b"),
        ({"table.datalake.lakes": "a", "table.datalake.lakes.a.enabled": "true"}, "not of one side"),
    ],
)
def test_sides_that_do_not_go_together(properties: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidTable, match=words):
        check_properties("db.t", properties)


def test_a_sides_property_is_checked_like_the_tables() -> None:
    with pytest.raises(InvalidOptionValue, match=r"lakes\.a\.freshness"):
        check_properties("db.t", {"table.datalake.lakes": "a", "table.datalake.lakes.a.freshness": "soon"})
