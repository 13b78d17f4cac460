# SPDX-License-Identifier: Apache-2.0
"""Hudi's own writer and services on Spark, as another team would use them on a table of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeward.lake.hudi.meta.properties import record_key_fields
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.model import BUCKET, OFFSET, TableInfo
from lakeward.spi import LakeStorage
from lakeward_testing.lakes.rounds import lake_rows

LOCKED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
}
"""What every writer beside rounds must say: docs/formats/hudi.md."""

QUIET = {"hoodie.embed.timeline.server": "false", "hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}


class HudiOnSpark:
    def __init__(self, spark: Any, lake: LakeStorage, table: TableInfo) -> None:
        assert isinstance(lake, HudiLakeStorage)
        self._spark, self._lake, self._table = spark, lake, table
        self.root = lake.table(table.path).root

    def rows(self, **options: str) -> list[tuple[int, int, int, Any]]:
        """(bucket, offset, id, name), as Hudi reads them."""
        frame = self._spark.read.format("hudi").options(**options).load(self.root)
        return sorted(tuple(r) for r in frame.select(BUCKET, OFFSET, "id", "name").collect())

    def expected(self) -> list[tuple[int, int, int, Any]]:
        """As our own reader does."""
        found = lake_rows(self._lake, self._table)
        return sorted((bucket.number, offset, r["id"], r["name"]) for bucket, offset, r in found)

    def write(self, rows: Sequence[Mapping[str, Any]], operation: str = "upsert", **options: str) -> None:
        """Whole rows of the table, with our columns; what is not given is null, the timestamp is today's."""
        there = self._spark.read.format("hudi").load(self.root).schema
        fields = [f for f in there if not f.name.startswith("_hoodie_")]
        kinds = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
        frame = self._spark.createDataFrame([[r.get(f.name) for f in fields] for r in rows], kinds)
        frame.write.format("hudi").options(**self.options(operation), **options).mode("append").save(self.root)

    def options(self, operation: str) -> dict[str, str]:
        given = {**LOCKED, **QUIET, "hoodie.table.name": self._table.path.table}
        given |= {"hoodie.database.name": self._table.path.database, "hoodie.datasource.write.operation": operation}
        if self._table.is_pk:
            given |= {
                "hoodie.index.type": "BUCKET",
                "hoodie.bucket.index.num.buckets": str(self._table.descriptor.bucket_count),
                "hoodie.bucket.index.hash.field": ",".join(self._table.descriptor.bucket_keys),
            }
        return given

    def clean(self) -> None:
        """Hudi's cleaner, which keeps what the newest commit needs."""
        jvm, context = self._spark._jvm, self._spark._jsc
        options = {
            **self.options("upsert"),
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self._table.is_pk else "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": ",".join(record_key_fields(self._table.descriptor)),
            "hoodie.clean.commits.retained": "1",
            "hoodie.metadata.enable": "false",
        }
        make = jvm.org.apache.hudi.DataSourceUtils.createHoodieClient
        client = make(context, None, self.root, self._table.path.table, options)
        try:
            assert client.clean() is not None, "there was nothing to clean"
        finally:
            client.close()

    def call(self, procedure: str, **arguments: str) -> list[Any]:
        """A procedure of Hudi's on this table."""
        given = ", ".join(f"{k} => '{v}'" for k, v in {"path": self.root, **arguments}.items())
        return list(self._spark.sql(f"CALL {procedure}({given})").collect())
