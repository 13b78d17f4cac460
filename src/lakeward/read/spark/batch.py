# SPDX-License-Identifier: Apache-2.0
"""`lakeward.spark.read`: a DataFrame over the lake's Parquet files, less what the tail replaced, plus the tail."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lakeward.errors import SparkUnsupported
from lakeward.model import LAKE_NAMES, Bucket
from lakeward.read.arrow import OpenRead, ReadRequest, open_read
from lakeward.read.opened import LakeOpener
from lakeward.read.piece import plan_pieces
from lakeward.read.spark.condition import spark_condition
from lakeward.read.spark.deadrows import DeadRows
from lakeward.read.spark.lakefiles import DeletedOffsets, FileGroups, group_files
from lakeward.read.spark.lakescan import LakeScan, spark_path
from lakeward.read.spark.tailframe import DRIVER_ROWS, driver_tail, empty_frame, keys_frame, pieces_frame
from lakeward.read.tail import TailFold
from lakeward.read.unionrows import fold_tails
from lakeward.spi import HotPlugin, LakeFile, SupportsVectors

log = logging.getLogger(__name__)

FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"


def read_frame(
    spark: Any, plugin: HotPlugin, request: ReadRequest, open_lake: LakeOpener | None = None
) -> tuple[Any, OpenRead]:
    """The DataFrame and the read behind it. The lease runs on for `request.lease_s`: a DataFrame is read after this
    returns.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SparkUnsupported(
            what="Spark Connect", reason="union reads build on the session's own JVM; use a classic session"
        )
    opened = open_read(plugin, request, open_lake)
    try:
        frame = _compose(spark, plugin, opened)
        if opened.predicate is not None:
            frame = frame.filter(spark_condition(opened.predicate, opened.table))
        read_columns = [*opened.columns, *(LAKE_NAMES if request.system_columns else ())]
        return frame.select([f"`{name}`" for name in read_columns]), opened
    except BaseException:
        opened.close()
        raise


def _compose(spark: Any, plugin: HotPlugin, opened: OpenRead) -> Any:
    columns = tuple(opened.wanted)
    files = opened.lake_files()
    folds = fold_tails(opened.hot, opened.table, opened.union.tails)
    groups = group_files(files, {b: f.replaced for b, f in folds.items() if f.replaced}, _deleted_offsets(opened))
    reason = why_no_scan(spark, files) or _why_made_up(opened)
    if reason is not None:
        log.warning("union read of %s goes through Python workers: %s", opened.table.path, reason)
        return pieces_frame(spark, opened.table, plan_pieces(plugin, opened), columns, opened.predicate)
    frames = [
        f
        for f in (_lake(spark, opened, groups, folds, columns), *_hot(spark, plugin, opened, folds, columns))
        if f is not None
    ]
    if not frames:
        return empty_frame(spark, opened.table, columns)
    union_frame = frames[0]
    for frame in frames[1:]:
        union_frame = union_frame.union(frame)
    return union_frame


def _deleted_offsets(opened: OpenRead) -> DeletedOffsets:
    return (lambda _file: None) if opened.pinned is None else opened.pinned.deleted_offsets


def _lake(
    spark: Any, opened: OpenRead, groups: FileGroups, folds: Mapping[Bucket, TailFold], columns: tuple[str, ...]
) -> Any | None:
    if opened.pinned is None or not (groups.clean or groups.by_offset or groups.by_path):
        return None
    spark.conf.set(FIELD_IDS, "true")
    scan = LakeScan(
        spark=spark,
        table=opened.table,
        snapshot=str(opened.union.snapshot_id),
        columns=columns,
        field_ids=opened.pinned.field_ids(),
        dead=DeadRows(opened.table, groups.dead),
        keys_frame=keys_frame(spark, folds),
        deleted_rows=opened.pinned.deleted_rows if isinstance(opened.pinned, SupportsVectors) else None,
    )
    return scan.frame(groups)


def _hot(
    spark: Any, plugin: HotPlugin, opened: OpenRead, folds: Mapping[Bucket, TailFold], columns: tuple[str, ...]
) -> list[Any]:
    """Small tails come through the driver as one Arrow table; big ones and KV snapshots are read by executors."""
    if not opened.union.tails and not opened.union.kv:
        return []
    if opened.union.kv or sum(len(r) for r in opened.union.tails.values()) > DRIVER_ROWS:
        return [pieces_frame(spark, opened.table, plan_pieces(plugin, opened, lake=False), columns)]
    return [driver_tail(spark, opened, columns, folds)]


def why_no_scan(spark: Any, files: tuple[LakeFile, ...]) -> str | None:
    """Why Spark cannot scan these files by itself; None when it can."""
    if any(f.is_reader_needed for f in files):
        return "the lake format's own reader is needed for its files"
    schemes = {spark_path(f.path).partition("://")[0] if "://" in f.path else "" for f in files}
    for scheme in sorted(schemes - {"file", ""}):
        if not _has_filesystem(spark, scheme):
            return (
                f"no Hadoop file system for {scheme}:// is on Spark's class path (for S3: hadoop-aws, see "
                f"docs/reading.md)"
            )
    return None


def _why_made_up(opened: OpenRead) -> str | None:
    filtered = () if opened.predicate is None else opened.predicate.columns
    is_asked = opened.request.system_columns or not set(LAKE_NAMES).isdisjoint(filtered)
    if opened.pinned is None or not is_asked or opened.pinned.has_offsets:
        return None
    return "its files have no system columns"


def _has_filesystem(spark: Any, scheme: str) -> bool:
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        spark._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Exception:  # noqa: BLE001 - any Java error here means: not usable
        return False
    return True
