# SPDX-License-Identifier: Apache-2.0
"""What a format wants of the processes around it is asked of its plugin, and never told by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config import resolve
from lakeward.errors import PluginNotFound, UnsafeLake
from lakeward.protocol.tables import LakeAddress
from lakeward.server.lakes import ServerLakes
from lakeward.spi import find_lake_plugin

URI = "http://server/iceberg"


def test_a_plain_function_wants_nothing_and_gives_no_secret_away() -> None:
    plugin = find_lake_plugin("memory")
    options = {"name": "n", "s3.secret-access-key": "s", "Token": "t", "header.X-Api-Key": "k"}
    assert not plugin.wants_catalog(options)
    assert plugin.server_options(options, Path("/nowhere")) == options
    assert plugin.peer_options(options, URI) == {"name": "n"}
    with pytest.raises(UnsafeLake, match=r"memory.*Flink"):
        plugin.fluss_options(options)


def test_iceberg_without_a_catalog_is_kept_and_served_by_the_server(tmp_path: Path) -> None:
    plugin = find_lake_plugin("iceberg")
    assert plugin.wants_catalog({"warehouse": "s3://w"})
    opened = plugin.server_options({"warehouse": "s3://w"}, tmp_path)
    assert (opened["type"], opened["warehouse"]) == ("sql", "s3://w")
    assert plugin.peer_options({"warehouse": "s3://w"}, URI) == {"warehouse": "s3://w", "type": "rest", "uri": URI}


def test_iceberg_with_a_catalog_is_left_there(tmp_path: Path) -> None:
    plugin, options = find_lake_plugin("iceberg"), {"type": "rest", "uri": "http://catalog", "token": "t"}
    assert not plugin.wants_catalog(options)
    assert plugin.server_options(options, tmp_path) == options
    assert plugin.peer_options(options, URI) == {"type": "rest", "uri": "http://catalog"}
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_is_not_installed_is_said_to_be_missing_when_it_is_opened(tmp_path: Path) -> None:
    lakes = ServerLakes(resolve(environment={}, arguments={"datalake.format": "nope"}), tmp_path)
    assert not lakes.has_embedded_catalog
    assert lakes.addresses("http://server") == {"default": LakeAddress(format="nope")}
    with pytest.raises(PluginNotFound, match="nope"):
        lakes("nope")


@pytest.mark.parametrize("format", ["paimon", "delta", "lance", "hudi"])
def test_a_lake_without_a_warehouse_is_in_the_servers_folder_and_jobs_are_told(tmp_path: Path, format: str) -> None:
    lakes = ServerLakes(resolve(environment={}, arguments={"datalake.format": format}), tmp_path)
    told = lakes.addresses("http://server")["default"]
    assert told == LakeAddress(format=format, options={"warehouse": str(tmp_path / "warehouse")})
    assert find_lake_plugin(format).server_options({}, tmp_path) == {"warehouse": str(tmp_path / "warehouse")}
    assert find_lake_plugin(format).server_options({"warehouse": "/w"}, tmp_path) == {"warehouse": "/w"}
