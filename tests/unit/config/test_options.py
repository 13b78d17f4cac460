# SPDX-License-Identifier: Apache-2.0
"""The table of options itself, the rules on tables and on the lake's settings, and the generated page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward.config import Scope, options, reference, resolve
from lakeward.config.lake import LakeConfig, load_lake_config
from lakeward.config.tables import check_alter, check_given, check_properties
from lakeward.errors import InvalidAlter, InvalidConfig, InvalidOptionValue, InvalidTable, UnknownOption
from lakeward.model import Column, Schema, TableDescriptor, parse_type

FLUSS_DEFAULTS = {
    "table.datalake.freshness": "3 min",
    "table.log.ttl": "7 d",
    "table.log.tiered.local-segments": "2",
    "table.changelog.image": "full",
    "table.auto-partition.num-retention": "7",
    "log.retention.check-interval": "5 min",
    "remote.log.task-interval-duration": "1 min",
    "remote.log.task-max-upload-segments": "5",
    "kv.snapshot.interval": "10 min",
    "kv.snapshot.num-retained": "2",
    "coordinator.lease.duration": "2 min",
    "coordinator.sweep.interval": "15 s",
}


@pytest.mark.parametrize(("key", "text"), FLUSS_DEFAULTS.items())
def test_defaults_that_are_fluss_own(key: str, text: str) -> None:
    option = options.ALL[key]
    assert option.default == option.kind.parse(text)


@pytest.mark.parametrize("key", ["log.segment.file-size", "table.datalake.enabled", "table.datalake.auto-maintenance"])
def test_where_ours_differ_the_reference_says_so(key: str) -> None:
    differences = reference.render().partition("## Where this differs from Fluss")[2]
    assert f"`{key}`" in differences


@pytest.mark.parametrize(
    ("key", "value"), [("compaction.fan-in", "1"), ("compaction.target-size", "0"), ("compaction.max-deleted", "1.5")]
)
def test_a_compaction_that_could_not_end_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{key}.*{value}"):
        resolve(arguments={key: value})


@pytest.mark.parametrize("option", options.ALL.values(), ids=lambda o: str(o.key))
def test_each_option_is_complete(option: Any) -> None:
    assert option.help.endswith(".")
    assert option.key.startswith("table.") == (option.scope is Scope.TABLE)
    assert (option.default is None) == bool(option.unset)
    if option.default is not None:
        assert option.kind.parse(option.spell(option.default)) == option.default
    assert getattr(options, option.key.upper().replace(".", "_").replace("-", "_")) is option


def test_every_option_is_read_by_somebody() -> None:
    config = Path(options.__file__).parents[1]
    readers = [p for p in config.parent.rglob("*.py") if config not in p.parents or p == config / "lake.py"]
    sources = "".join(p.read_text() for p in readers)
    unread = {key for key in options.ALL if key.upper().replace(".", "_").replace("-", "_") not in sources}
    assert unread == set(), "an option that nobody reads is a promise that nobody keeps"


def test_the_page_in_docs_is_the_rendered_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "config.md"
    assert page.read_text().strip() == reference.render().strip()


def test_custom_properties_pass_and_table_keys_are_checked() -> None:
    config = check_properties("db.t", {"iceberg.x": "y", "owner": "me", "table.datalake.freshness": "5 s"})
    assert config.get(options.TABLE_DATALAKE_FRESHNESS) == timedelta(seconds=5)
    with pytest.raises(UnknownOption, match=r"table\.datalake\.freshness"):
        check_properties("db.t", {"table.datalake.fresh": "5 s"})
    with pytest.raises(InvalidOptionValue):
        check_properties("db.t", {"table.datalake.freshness": "0 s"})


AUTO = {"table.auto-partition.enabled": "true"}


def partitioned(*keys: str) -> TableDescriptor:
    sql = {"a": "STRING", "b": "STRING", "day": "STRING", "ts": "TIMESTAMP_LTZ(6)", "at": "TIMESTAMP(6)"}
    columns = tuple(Column(name=name, type=parse_type(kind)) for name, kind in sql.items())
    return TableDescriptor(schema=Schema(columns=columns), partition_keys=keys)


@pytest.mark.parametrize(
    ("properties", "keys", "words"),
    [
        ({"table.log.local-ttl": "8 d"}, (), "table.log.ttl"),
        ({"table.auto-partition.enabled": "true"}, (), "no partition key"),
        ({"table.auto-partition.enabled": "true"}, ("a", "b"), "a, b"),
        (
            {"table.auto-partition.enabled": "true", "table.auto-partition.key": "c"},
            ("a",),
            "none of the partition keys",
        ),
        (
            {"table.auto-partition.enabled": "true", "table.auto-partition.time-zone": "Mars/Olympus"},
            ("a",),
            "time zone",
        ),
        ({**AUTO, "table.auto-partition.time-unit": "hour"}, ("day(ts)",), r"partitioned by day\(ts\): leave it out"),
        ({**AUTO, "table.auto-partition.time-zone": "Asia/Tokyo"}, ("day(ts)",), "are times of UTC: leave it out"),
    ],
)
def test_properties_that_do_not_go_together(properties: dict[str, str], keys: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidTable, match=words):
        check_properties("db.t", properties, partitioned(*keys))


def test_properties_that_do_go_together() -> None:
    check_properties("db.t", {"table.log.ttl": "0", "table.log.local-ttl": "8 d"})
    check_properties(
        "db.t",
        {"table.auto-partition.enabled": "true", "table.auto-partition.time-zone": "Europe/Berlin"},
        partitioned("day"),
    )
    check_properties("db.t", {**AUTO, "table.auto-partition.time-zone": "Europe/Berlin"}, partitioned("day(at)"))
    check_properties("db.t", {**AUTO, "table.auto-partition.time-unit": "hour"}, partitioned("hour(ts)"))


def test_what_is_fixed_at_creation_cannot_be_altered() -> None:
    check_alter("db.t", {"table.datalake.freshness": "1 min", "table.log.ttl": None, "iceberg.x": "1", "mine": None})
    for changes in ({"table.datalake.format": "iceberg"}, {"table.changelog.image": None}):
        with pytest.raises(InvalidAlter):
            check_alter("db.t", changes)
    with pytest.raises(UnknownOption):
        check_alter("db.t", {"table.nope": "1"})


def lake(**settings: str) -> LakeConfig | None:
    return load_lake_config(resolve(environment={}, arguments={k.replace("_", "."): v for k, v in settings.items()}))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("delta.history.expire.max-snapshot-age-ms", "abc", "a whole number, 0 or more"),
        ("paimon.history.expire.min-snapshots-to-keep", "0", "a whole number, 1 or more"),
        ("iceberg.write.target-file-size-bytes", "128 mb", "a whole number, 1 or more"),
        ("delta.checkpointInterval", "-1", "a whole number, 1 or more"),
        ("compaction.fan-in", "1", "a setting of tiering jobs, for lakeward.toml or LAKEWARD_COMPACTION__FAN_IN"),
        ("kv.snapshot.interval", "1 min", "a setting of the server"),
    ],
)
def test_what_rounds_could_not_work_with_is_refused_when_it_is_said(key: str, value: str, words: str) -> None:
    with pytest.raises(InvalidTable, match=words) as caught:
        check_given("db.t", {key: value})
    assert (caught.value.field, caught.value.value) == (key, value)


def test_what_is_said_of_a_table_and_its_lake_is_taken() -> None:
    check_given(
        "db.t",
        {
            "iceberg.history.expire.max-snapshot-age-ms": "604800000",
            "delta.checkpointInterval": None,
            "table.log.ttl": "1 d",
            "owner": "ann",
        },
    )


def test_a_lake_is_there_when_a_format_is() -> None:
    assert lake() is None
    assert lake(datalake_enabled="false") is None
    assert lake(datalake_format="iceberg", datalake_iceberg_uri="x") == LakeConfig(
        format="iceberg", enabled=True, settings={"uri": "x"}
    )
    bound = lake(datalake_format="iceberg", datalake_enabled="false")
    assert bound is not None
    assert not bound.enabled


@pytest.mark.parametrize(
    "settings",
    [
        {"datalake_enabled": "true"},
        {"datalake_iceberg_uri": "x"},
        {"datalake_format": "iceberg", "datalake_paimon_uri": "x"},
    ],
)
def test_a_half_written_lake_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="datalake"):
        lake(**settings)
