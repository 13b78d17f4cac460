# SPDX-License-Identifier: Apache-2.0
"""What a format lacks is refused in words: plugins when they are loaded, tables when they are created or altered."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import InvalidAlter, InvalidConfig, InvalidTable
from lakeward.lake.memory.plugin import CAPABILITIES, MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import Column, DateType, Int64Type, Schema, StringType, TableDescriptor, TablePath
from lakeward.protocol.tables import AlterTable, CreateTable
from lakeward.spi import DeleteEncoding, Lack, LakeCapabilities, check_table, load_lake
from tests.kit.world import CoordinatorWorld

PATH = TablePath("db", "t")
NONE: frozenset[DeleteEncoding] = frozenset()


def descriptor(**facts: Any) -> TableDescriptor:
    columns = (
        Column(name="id", type=Int64Type(nullable=False)),
        Column(name="region", type=StringType(nullable=False)),
        Column(name="at", type=DateType()),
    )
    return TableDescriptor(schema=Schema(columns=columns), bucket_count=1, **facts)


CASES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"delete_encodings": NONE}, {"primary_key": ("id",)}, "primary_key.*no upserts"),
    (
        {"time_partitions": False},
        {"partition_keys": ("day(at)",)},
        r"day\(at\).*no partitions by the time of a column here: put the table on an Iceberg or a Lance lake, or give",
    ),
    ({"lacks": {Lack.PARTITIONS}}, {"partition_keys": ("region",)}, "partition_keys.*no partitions"),
    ({"lacks": {Lack.COMPOSITE_BUCKET_KEY}}, {"bucket_keys": ("id", "region")}, "bucket_keys.*several columns"),
]


@pytest.mark.parametrize(("lacks", "table", "said"), CASES)
def test_a_table_that_needs_what_its_format_lacks_is_not_created(
    tmp_path: Path, lacks: dict[str, Any], table: dict[str, Any], said: str
) -> None:
    world = CoordinatorWorld(tmp_path, MemoryLakeStorage(MemoryLake(), replace(CAPABILITIES, **lacks)))
    with pytest.raises(InvalidTable, match=said):
        world.federation.create(CreateTable(path=PATH, descriptor=descriptor(**table)))
    assert not world.lake.catalog().exists(PATH)
    world.federation.create(CreateTable(path=PATH, descriptor=descriptor()))
    world.close()


def test_a_column_is_not_added_where_the_format_cannot(tmp_path: Path) -> None:
    world = CoordinatorWorld(
        tmp_path, MemoryLakeStorage(MemoryLake(), replace(CAPABILITIES, lacks=frozenset({Lack.ADD_COLUMN})))
    )
    world.create()
    column = Column(name="more", type=StringType()).to_json()
    with pytest.raises(InvalidAlter, match="in memory, whose columns we can change so: nothing"):
        world.federation.alter(PATH, AlterTable(add_columns=(column,)))
    assert "more" not in world.hot.load_table(PATH).schema.names
    world.close()


def test_the_encoding_follows_what_the_hot_store_tells() -> None:
    assert CAPABILITIES.encoding(has_prev_offset=True) is DeleteEncoding.POSITIONS
    assert CAPABILITIES.encoding(has_prev_offset=False) is DeleteEncoding.EQUALITY
    native = replace(CAPABILITIES, delete_encodings=frozenset({DeleteEncoding.NATIVE}))
    assert {native.encoding(has_prev_offset=known) for known in (True, False)} == {DeleteEncoding.NATIVE}
    positions = replace(CAPABILITIES, delete_encodings=frozenset({DeleteEncoding.POSITIONS}))
    with pytest.raises(InvalidTable, match="no way to replace rows"):
        check_table("f", positions, PATH, descriptor(primary_key=("id",)), has_prev_offset=False)


def load_careless(options: Mapping[str, str]) -> MemoryLakeStorage:
    return MemoryLakeStorage(MemoryLake(), replace(CAPABILITIES, lacks=frozenset({Lack.CONDITIONAL_COMMIT})))


def test_a_format_that_cannot_commit_on_an_exact_head_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "careless-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: careless\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[lakeward.lake]\ncareless = {__name__}:load_careless\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(InvalidConfig, match=r"careless.*exact head"):
        load_lake("careless", {})


def test_capabilities_of_a_plugin_for_an_older_version_mean_the_same_and_warn() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"LakeCapabilities\(conditional_commit, tags, .*rewrites\) goes with 0\.3"
    ):
        old = LakeCapabilities(
            delete_encodings=NONE,
            one_writer_per_bucket=False,
            conditional_commit=True,
            tags=True,
            add_column=False,
            partitions=False,
            composite_bucket_key=True,
            snapshot_expiry=True,
            rewrites=True,
        )
    assert old.lacks == {Lack.ADD_COLUMN, Lack.PARTITIONS}
    assert replace(old, one_writer_per_bucket=True).lacks == old.lacks
