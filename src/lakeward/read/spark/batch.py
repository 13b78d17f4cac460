# SPDX-License-Identifier: Apache-2.0
"""`lakeward.spark.read`: a DataFrame over the lake's Parquet files, less what the tail replaced, plus the tail."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F

from lakeward.errors import SparkUnsupported
from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP
from lakeward.read.arrow import OpenRead, ReadRequest, open_read
from lakeward.read.piece import plan_pieces
from lakeward.read.plan import ReadMode
from lakeward.read.spark.lakescan import LakeScan, group_files
from lakeward.read.spark.tailframe import DRIVER_ROWS, driver_tail, fold_tails, keys_frame, pieces_frame, replaced_frame
from lakeward.spi.hot import HotPlugin
from lakeward.spi.lake import LakeFile

log = logging.getLogger(__name__)


def read_frame(spark: Any, plugin: HotPlugin, request: ReadRequest) -> tuple[Any, OpenRead]:
    """The DataFrame and the read behind it. The lease runs on for `request.lease_s`: a DataFrame is read after this returns."""
    if not hasattr(spark, "_jsparkSession"):
        raise SparkUnsupported(what="Spark Connect", reason="union reads build on the session's own JVM; use a classic session")
    opened = open_read(plugin, request)
    frame = _compose(spark, plugin, opened)
    wanted = [*opened.columns, *((BUCKET, OFFSET, TIMESTAMP) if request.system_columns else ())]
    return frame.select(*[F.col(f"`{name}`") for name in wanted]), opened


def _compose(spark: Any, plugin: HotPlugin, opened: OpenRead) -> Any:
    if opened.request.mode is ReadMode.HOT and opened.table.is_pk:
        raise SparkUnsupported(what="mode hot on a PK table", reason="read it with client.read(..., mode='hot'), or use union")
    files = () if opened.lake is None or opened.union.snapshot_id is None else tuple(opened.lake.files(opened.union.snapshot_id))
    reason = _no_native_scan(spark, files)
    if reason is not None:
        log.warning("union read of %s goes through Python workers: %s", opened.table.path, reason)
        return pieces_frame(spark, opened.table, plan_pieces(plugin, opened), opened.columns)
    folds = fold_tails(opened)
    replaced = {b: f.replaced for b, f in folds.items() if f.replaced}
    assert opened.lake is not None or not files
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    scan = LakeScan(
        spark=spark,
        table=opened.table,
        columns=tuple(opened.columns),
        field_ids=opened.lake.field_ids() if opened.lake is not None else {},
        replaced_frame=replaced_frame(spark, opened.table, replaced) if files else None,
        replaced_rows=sum(len(s) for s in replaced.values()),
        keys_frame=keys_frame(spark, folds) if files else None,
    )
    lake = scan.frame(group_files(files, replaced))
    tail = _tail(spark, plugin, opened, folds)
    if lake is None:
        return tail
    return lake if tail is None else lake.unionByName(tail)


def _tail(spark: Any, plugin: HotPlugin, opened: OpenRead, folds: Any) -> Any:
    rows = sum(len(r) for r in opened.union.tails.values())
    if rows <= DRIVER_ROWS:
        return driver_tail(spark, opened, opened.columns, folds)
    pieces = [replace(p, snapshot_id=None) for p in plan_pieces(plugin, opened) if p.tail is not None]
    return pieces_frame(spark, opened.table, pieces, opened.columns)


def _no_native_scan(spark: Any, files: tuple[LakeFile, ...]) -> str | None:
    """Why Spark cannot scan these files by itself; None when it can."""
    if any(d.content == "vector" for f in files for d in f.deletes):
        return "the lake has deletion vectors, which Spark's Parquet scan does not read"
    schemes = {f.path.partition("://")[0] if "://" in f.path else "" for f in files}
    for scheme in schemes - {"file", ""}:
        if not _has_filesystem(spark, scheme):
            return f"no Hadoop file system for {scheme}:// is on Spark's class path (for S3: hadoop-aws)"
    return None


def _has_filesystem(spark: Any, scheme: str) -> bool:
    jvm = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Exception:  # noqa: BLE001 - any Java error here means: not usable
        return False
    return True
