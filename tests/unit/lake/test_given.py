# SPDX-License-Identifier: Apache-2.0
"""Lake properties are asked about when they are said: a round would find out too late, or nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import InvalidTable
from lakeward.model import TablePath
from lakeward.spi import LakeCatalog, load_lake

PATH = TablePath("db", "t")


def catalog_of(name: str, folder: Path) -> LakeCatalog:
    options = {"warehouse": str(folder)}
    if name == "iceberg":
        options |= {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    return load_lake(name, options).catalog()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("iceberg.write.parquet.compression-codec", "foo", "not one of uncompressed, snappy"),
        ("iceberg.write.parquet.compression-level", "high", "a whole number"),
        ("iceberg.write.metadata.metrics.default", "some", r"truncate\(N\)"),
        ("iceberg.write.metadata.metrics.column.id", "truncate(0)", r"truncate\(N\)"),
        ("iceberg.write.metadata.delete-after-commit.enabled", "maybe", "true or false"),
        ("iceberg.write.object-storage.enabled", "maybe", "true or false"),
        ("iceberg.of.some.engine", "x", "allowed-properties"),
        ("iceberg.py-io-impl", "builtins.eval", "allowed-properties"),
        ("paimon.of.some.engine", "x", "may set"),
        ("paimon.fs.s3.endpoint", "http://127.0.0.1:1", "may set"),
        ("paimon.s3.endpoint", "http://127.0.0.1:1", "may set"),
        ("paimon.commit.callbacks", "com.acme.Callback", "may set"),
        ("paimon.partition.mark-done-action.custom.class", "com.acme.Action", "may set"),
        ("paimon.local-cache.dir", "/etc", "may set"),
        ("paimon.security.kerberos.login.keytab", "/etc/x", "may set"),
        ("paimon.file.compression", "brotli", "lz4_raw or zstd"),
        ("paimon.manifest.compression", "gzip", "bzip2 or xz"),
        ("paimon.metadata.stats-mode", "some", r"truncate\(N\)"),
        ("paimon.manifest.target-file-size", "abc", "start with a number"),
        ("paimon.parquet.write-page-index.enabled", "maybe", "boolean"),
        ("paimon.num-levels", "few", "a whole number"),
        ("delta.merge-engine", "deduplicate", r"rounds do not know it; allowed are .*delta\.checkpointInterval"),
        ("delta.write.target-file-size-bytes", "1", r"allowed are .*delta\.targetFileSize"),
        ("delta.logRetentionDuration", "a while", "interval 7 days"),
        ("delta.targetFileSize", "100mb", "a whole number"),
        ("lance.bucket", "4", r"allowed are .*lance\.write\.target-file-size-bytes"),
        ("lance.auto_cleanup.interval", "4", "rounds do not know it"),
        ("hudi.format-version", "9", r"allowed are .*hudi\.hoodie\.parquet\.\*"),
        ("hudi.hoodie.parquet.max.file.size", "big", "a whole number"),
    ],
)
def test_what_rounds_could_not_go_by_is_refused_in_words(key: str, value: str, words: str, tmp_path: Path) -> None:
    catalog = catalog_of(key.partition(".")[0], tmp_path)
    with pytest.raises(InvalidTable, match=words) as refused:
        catalog.check_given(PATH, {key: value}, [key])
    assert (refused.value.field, refused.value.value) == (key, value)
    catalog.check_given(PATH, {key: value}, ["another"])
    catalog.check_given(PATH, {}, [key])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iceberg.write.parquet.compression-codec", "GZIP"),
        ("iceberg.write.parquet.compression-level", "9"),
        ("iceberg.write.metadata.metrics.default", "truncate(16)"),
        ("iceberg.comment", "x"),
        ("paimon.file.compression", "ZSTD"),
        ("paimon.target-file-size", "128 mb"),
        ("paimon.snapshot.time-retained", "1 h"),
        ("paimon.comment", "x"),
        ("paimon.compaction.max.file-num", "9"),
        ("delta.history.expire.max-snapshot-age-ms", "1000"),
        ("delta.deletedFileRetentionDuration", "interval 7 days"),
        ("delta.autoOptimize.optimizeWrite", "true"),
        ("lance.history.expire.min-snapshots-to-keep", "2"),
        ("hudi.hoodie.parquet.compression.codec", "snappy"),
        ("hudi.hoodie.parquet.max.file.size", "1000"),
    ],
)
def test_what_somebody_reads_is_taken(key: str, value: str, tmp_path: Path) -> None:
    catalog_of(key.partition(".")[0], tmp_path).check_given(PATH, {key: value, "some.key": "x"}, [key, "some.key"])


def test_a_level_is_asked_of_the_codec_that_the_table_has(tmp_path: Path) -> None:
    catalog = catalog_of("iceberg", tmp_path)
    codec, level = (f"iceberg.write.parquet.compression-{what}" for what in ("codec", "level"))
    for said in ([level], [codec], [codec, level]):
        for name, number in (("snappy", "3"), ("gzip", "15")):
            with pytest.raises(InvalidTable, match=f"{name} has no such level"):
                catalog.check_given(PATH, {codec: name, level: number}, said)
    catalog.check_given(PATH, {level: "15"}, [codec])
    catalog.check_given(PATH, {codec: "snappy", level: "null"}, [codec])
