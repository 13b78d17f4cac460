# SPDX-License-Identifier: Apache-2.0
"""The server's lakes by name: which folder and which catalog each has, what peers are told, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config import resolve
from lakeward.errors import InvalidConfig, LakeNotFound
from lakeward.protocol.tables import LakeAddress
from lakeward.server.lakes import ServerLakes


def server_lakes(folder: Path, **arguments: str) -> ServerLakes:
    return ServerLakes(resolve(environment={}, arguments=arguments), folder)


def test_each_named_lake_is_opened_by_its_name_and_has_its_own_folder(tmp_path: Path) -> None:
    lakes = server_lakes(
        tmp_path, **{"datalake.format": "iceberg", "lakes.cold.format": "paimon", "lakes.m.format": "memory"}
    )
    assert lakes("m") is lakes("m")
    assert lakes("m").name == "memory"
    assert lakes("default") is lakes("iceberg")
    told = lakes.addresses("http://server")
    assert told["default"].options == {"type": "rest", "uri": "http://server/iceberg"}
    assert told["cold"] == LakeAddress(
        format="paimon", options={"warehouse": str(tmp_path / "lakes" / "cold" / "warehouse")}
    )
    assert lakes.elsewhere() == ["cold", "m"]
    with pytest.raises(LakeNotFound, match=r"'nope'.*default, cold, m"):
        lakes.find("nope")


def test_a_named_iceberg_lake_may_have_the_servers_catalog_wherever_the_default_goes(tmp_path: Path) -> None:
    given = {"lakes.main.format": "iceberg", "lakes.cold.format": "memory"}
    for default in ("main", "cold"):
        lakes = server_lakes(tmp_path, **given, **{"datalake.default-lake": default})
        assert lakes.has_embedded_catalog
        assert lakes.embedded_catalog() is not None
        assert (tmp_path / "iceberg").is_dir()


def two(format: str, key: str, one: str, other: str) -> dict[str, str]:
    named = {"lakes.a.format": format, f"lakes.a.{key}": one, "lakes.b.format": format, f"lakes.b.{key}": other}
    return {"datalake.default-lake": "a", **named}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"datalake.format": "iceberg", "lakes.a.format": "iceberg"}, r"lakes\.a.*keeps one catalog"),
        (two("delta", "warehouse", "/w", "/w"), r"lakes\.b.*where lake a is"),
        (two("delta", "warehouse", "/w/x", "file:///w/y/../x/"), r"lakes\.b.*where lake a is"),
        (two("paimon", "warehouse", "s3://w/x", "s3a://w/x/"), r"lakes\.b.*where lake a is"),
        (two("iceberg", "uri", "http://c/rest", "http://c/rest/"), r"lakes\.b.*where lake a is"),
    ],
)
def test_two_lakes_in_one_place_are_refused(tmp_path: Path, arguments: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        server_lakes(tmp_path, **arguments)
