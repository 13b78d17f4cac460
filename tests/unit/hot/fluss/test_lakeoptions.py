# SPDX-License-Identifier: Apache-2.0
"""The cluster's lake settings as PyIceberg's; catalogs that cannot be shared safely are refused."""

from __future__ import annotations

import pytest

from lakeward.errors import InvalidConfig, InvalidTable, UnsafeLake
from lakeward.hot.fluss.lakeoptions import lake_of
from lakeward.lake.iceberg.flussoptions import CATALOG_NAME, iceberg_options
from lakeward.model import Column, Schema, TableDescriptor, TableId, TableInfo, TablePath, parse_type


def table(**properties: str) -> TableInfo:
    schema = Schema(columns=(Column(name="id", type=parse_type("BIGINT")),))
    spelled = {"table.datalake.enabled": "true", **{k.replace("__", "."): v for k, v in properties.items()}}
    return TableInfo(
        path=TablePath("d", "t"), table_id=TableId("1"), descriptor=TableDescriptor(schema=schema, properties=spelled)
    )


def test_a_rest_catalog_keeps_its_settings() -> None:
    given = {
        "type": "rest",
        "uri": "http://c:8181",
        "warehouse": "w",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "http://m",
    }
    expected = {
        "type": "rest",
        "uri": "http://c:8181",
        "warehouse": "w",
        "s3.endpoint": "http://m",
        "name": CATALOG_NAME,
    }
    assert iceberg_options(given) == expected


@pytest.mark.parametrize(
    ("jdbc", "uri"),
    [
        ("jdbc:sqlite:/data/catalog.db", "sqlite:////data/catalog.db?timeout=30"),
        ("jdbc:sqlite:/data/catalog.db?busy_timeout=30000", "sqlite:////data/catalog.db?timeout=30"),
        ("jdbc:sqlite:file:/data/catalog.db", "sqlite:////data/catalog.db?timeout=30"),
        ("jdbc:postgresql://db:5432/lake?ssl=true", "postgresql+psycopg2://db:5432/lake"),
    ],
)
def test_a_jdbc_catalog_becomes_a_sql_catalog(jdbc: str, uri: str) -> None:
    options = iceberg_options({"type": "jdbc", "uri": jdbc, "jdbc.schema-version": "V1", "name": "theirs"})
    assert options == {"type": "sql", "uri": uri, "name": "theirs"}


def test_a_catalog_named_by_its_class() -> None:
    assert iceberg_options({"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"})["type"] == "glue"


@pytest.mark.parametrize(
    "given", [{"type": "hadoop"}, {"type": "Hadoop"}, {"catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog"}]
)
def test_a_hadoop_catalog_is_refused_in_words(given: dict[str, str]) -> None:
    with pytest.raises(UnsafeLake, match="rest, jdbc, hive or glue"):
        iceberg_options(given)


def test_the_type_may_be_spelled_as_java_takes_it() -> None:
    assert iceberg_options({"type": "REST", "uri": "http://c"})["type"] == "rest"
    assert iceberg_options({"type": "JDBC", "uri": "jdbc:sqlite:/c.db"})["type"] == "sql"
    assert iceberg_options({"uri": "thrift://c"})["type"] == "hive"


@pytest.mark.parametrize("given", [{"type": "nessie"}, {"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog"}])
def test_a_catalog_that_pyiceberg_lacks_is_refused_in_words(given: dict[str, str]) -> None:
    with pytest.raises(UnsafeLake, match=r"[nN]essie.*Flink job"):
        iceberg_options(given)


def test_an_unknown_database_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="oracle"):
        iceberg_options({"type": "jdbc", "uri": "jdbc:oracle:thin:@x"})


def test_other_formats_are_left_to_the_flink_job() -> None:
    with pytest.raises(UnsafeLake, match="Flink"):
        lake_of(table(table__datalake__format="lance"), {})
    with pytest.raises(UnsafeLake, match="a layout that rounds do not write"):
        lake_of(table(table__datalake__format="hudi"), {})
    with pytest.raises(InvalidConfig, match=r"table\.datalake\.format"):
        lake_of(table(), {})


def test_a_paimon_warehouse_keeps_its_settings_and_other_catalogs_of_paimon_are_refused() -> None:
    given = {"metastore": "filesystem", "warehouse": "s3://b/w", "s3.endpoint": "http://m"}
    made = {f"table.datalake.paimon.{k}": v for k, v in given.items()}
    assert lake_of(table(table__datalake__format="PAIMON", **made), {}) == ("paimon", given)
    for kind in ("hive", "jdbc", "rest"):
        with pytest.raises(UnsafeLake, match=rf"{kind}.*filesystem.*Flink job"):
            lake_of(table(table__datalake__format="paimon", table__datalake__paimon__metastore=kind), {})


@pytest.mark.parametrize(
    ("option", "value"), [("merge-engine", "partial-update"), ("deletion-vectors.enabled", "true")]
)
def test_a_paimon_table_that_rounds_cannot_keep_is_refused_in_words(option: str, value: str) -> None:
    made = table(**{"table.datalake.format": "paimon", f"paimon.{option}": value})
    with pytest.raises(InvalidTable, match=rf"paimon\.{option} '{value}': rounds rely on"):
        lake_of(made, {})


def test_a_table_that_was_never_tiered_is_refused_in_words() -> None:
    with pytest.raises(
        InvalidTable, match=r"table\.datalake\.enabled 'false': Fluss tiers only tables where it is true"
    ):
        lake_of(table(table__datalake__enabled="false", table__datalake__format="iceberg"), {})
    once = {"table__datalake__iceberg__type": "rest", "table__datalake__iceberg__uri": "http://x"}
    assert (
        lake_of(table(table__datalake__enabled="false", table__datalake__format="iceberg", **once), {})[0] == "iceberg"
    )


def test_what_the_user_says_wins() -> None:
    made = table(
        table__datalake__format="iceberg",
        table__datalake__iceberg__type="rest",
        table__datalake__iceberg__uri="http://inside",
    )
    assert lake_of(made, {"uri": "http://outside"})[1]["uri"] == "http://outside"
