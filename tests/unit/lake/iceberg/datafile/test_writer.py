# SPDX-License-Identifier: Apache-2.0
"""What a writer leaves: files of the asked size in offset order, statistics, field ids, offset caches."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from lakeward.errors import InvalidConfig, LakeSchemaBroken
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import (
    Bucket,
    Column,
    LogSplit,
    OffsetRange,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_round_id,
    new_table_id,
    parse_type,
)
from lakeward.spi import WriteTask
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "few": "STRING",
    "many": "STRING",
    "price": "DECIMAL(9, 2)",
    "tags": "ARRAY<STRING>",
}


def make_table(lake: IcebergLakeStorage, *, pk: bool = False, name: str = "t", **properties: str) -> TableInfo:
    schema = Schema(columns=tuple(Column(name=n, type=parse_type(t)) for n, t in COLUMNS.items()))
    options = {f"iceberg.{k.replace('__', '.').replace('_', '-')}": v for k, v in properties.items()}
    descriptor = TableDescriptor(schema=schema, primary_key=("id",) if pk else (), properties=options)
    table = TableInfo(path=TablePath("db", name), table_id=new_table_id(), descriptor=descriptor)
    lake.catalog().create(table)
    return table


def batch(start: int, rows: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + rows)
    arrays = [
        pa.array(numbers),
        pa.array([f"kind {n % 3}" for n in numbers]),
        pa.array([None if n % 10 == 0 else f"text {n:09d}" for n in numbers]),
        pa.array(numbers).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2)),
        pa.array([["a", f"b{n % 4}"] for n in numbers]),
        pa.array(numbers),
        pa.array(np.full(rows, 1_700_000_000_123), pa.timestamp("ms", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[*COLUMNS, "__offset", "__timestamp"])


def write(lake: IcebergLakeStorage, table: TableInfo, *batches: pa.RecordBatch) -> WriteResult:
    round_id = new_round_id()
    split = LogSplit(bucket=Bucket("", 0), range=OffsetRange(0, 10**6))
    handle = lake.open_committer(table).begin(round_id)
    writer = lake.open_writer(WriteTask(round_id=round_id, table=table, split=split, attempt=3, handle=handle))
    for part in batches:
        writer.write(part)
    data = writer.complete()
    assert data is not None
    return WriteResult.from_bytes(data)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def test_statistics_bounds_and_ids(lake: IcebergLakeStorage) -> None:
    table = make_table(lake)
    (file,) = write(lake, table, batch(0, 700), batch(700, 300)).files
    schema = lake.connection.load(table.path).schema()
    ids = {name: schema.find_field(name).field_id for name in schema.column_names}
    assert (file.record_count, file.first_offset, file.last_offset) == (1000, 0, 999)
    assert file.size_bytes == local(file.path).stat().st_size
    assert file.null_value_counts[ids["many"]] == 100
    assert file.value_counts[ids["id"]] == 1000
    assert (
        struct.unpack("<q", file.lower_bounds[ids["__offset"]]),
        struct.unpack("<q", file.upper_bounds[ids["__offset"]]),
    ) == (
        (0,),
        (999,),
    )
    price = schema.find_field("price").field_type
    assert isinstance(price, PrimitiveType)
    assert str(from_bytes(price, file.upper_bounds[ids["price"]])) == "999.00"
    assert file.lower_bounds[ids["many"]] == b"text 000000001"
    assert file.sort_order_id == 1
    read = pq.ParquetFile(local(file.path))
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in read.schema_arrow] == [f.field_id for f in schema.fields]
    assert b"ARROW:schema" not in (read.metadata.metadata or {})
    assert read.schema_arrow.field("few").type == pa.string()


def test_a_dictionary_only_where_it_pays(lake: IcebergLakeStorage) -> None:
    table = make_table(lake)
    (file,) = write(lake, table, batch(0, 5_000)).files
    group = pq.ParquetFile(local(file.path)).metadata.row_group(0)
    chosen = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).has_dictionary_page}
    assert chosen == {"few", "tags.list.element", "__bucket", "__timestamp"}
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}


def test_row_groups_and_files_have_the_size_that_the_table_asks_for(lake: IcebergLakeStorage) -> None:
    table = make_table(lake, write__parquet__row_group_limit="1000", write__target_file_size_bytes="12000")
    files = write(lake, table, batch(0, 2_500), batch(2_500, 2_500)).files
    assert len(files) > 1
    assert sum(f.record_count for f in files) == 5_000
    assert [(f.first_offset, f.last_offset + 1) for f in files] == [
        (a, b)
        for a, b in zip([0, *(f.last_offset + 1 for f in files[:-1])], [f.last_offset + 1 for f in files], strict=True)
    ]
    for file in files:
        metadata = pq.ParquetFile(local(file.path)).metadata
        assert max(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) <= 1000
        offsets = pq.read_table(local(file.path), columns=["__offset"]).column(0).to_numpy()
        assert np.all(np.diff(offsets) == 1)
    assert all(f.size_bytes >= 12_000 for f in files[:-1])


def test_rows_of_very_different_sizes_all_arrive(lake: IcebergLakeStorage) -> None:
    table = make_table(lake, write__parquet__row_group_size_bytes="20000")
    wide = batch(100, 5)
    wide = wide.set_column(2, "many", pa.array(["x" * 30_000] * 5))
    files = write(lake, table, batch(0, 100), wide, batch(105, 100)).files
    assert sum(f.record_count for f in files) == 205


@pytest.mark.parametrize(("codec", "found"), [("snappy", "SNAPPY"), ("gzip", "GZIP"), ("uncompressed", "UNCOMPRESSED")])
def test_the_codec_is_the_tables(lake: IcebergLakeStorage, codec: str, found: str) -> None:
    table = make_table(lake, write__parquet__compression_codec=codec)
    (file,) = write(lake, table, batch(0, 2_000)).files
    assert pq.ParquetFile(local(file.path)).metadata.row_group(0).column(0).compression == found


def test_a_file_of_a_few_rows_is_not_compressed(lake: IcebergLakeStorage) -> None:
    """Unless more rows than its first may follow."""
    kinds = list[str]()
    for limit in ("1000", "10"):
        table = make_table(lake, name=f"t{limit}", write__parquet__row_group_limit=limit)
        (file,) = write(lake, table, batch(0, 30)).files
        kinds.append(pq.ParquetFile(local(file.path)).metadata.row_group(0).column(0).compression)
    assert kinds == ["UNCOMPRESSED", "ZSTD"]


def test_a_codec_that_nobody_knows_is_named(lake: IcebergLakeStorage) -> None:
    table = make_table(lake, write__parquet__compression_codec="lzip")
    with pytest.raises(InvalidConfig, match="lzip"):
        write(lake, table, batch(0, 10))


def test_a_batch_with_a_column_that_the_lake_does_not_have(lake: IcebergLakeStorage) -> None:
    table = make_table(lake)
    with pytest.raises(LakeSchemaBroken, match="stranger"):
        write(lake, table, batch(0, 3).append_column("stranger", pa.array([1, 2, 3])))
    with pytest.raises(LakeSchemaBroken, match="id"):
        write(lake, table, batch(0, 3).drop_columns(["id"]))


def test_files_of_a_log_table_have_no_cache(lake: IcebergLakeStorage) -> None:
    (file,) = write(lake, make_table(lake), batch(0, 10)).files
    assert not Path(f"{local(file.path)}.offsets").exists()
    assert file.offsets == b""


@pytest.mark.parametrize("damage", ["none", "removed", "torn"])
def test_the_offset_cache_lives_and_dies_with_its_file(lake: IcebergLakeStorage, damage: str) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, *(row(i) for i in range(20)))
    made = LakeRound.plan(lake, log)
    made.run()
    upkeep = lake.open_maintenance(log.table)
    (data,) = [f.path for f in upkeep.list_files(made.committer.prefix(made.round_id)) if f.path.endswith(".parquet")]
    cache = Path(f"{local(data)}.offsets")
    assert cache.exists()
    assert not any(f.path.endswith(".offsets") for f in upkeep.list_files())
    if damage == "removed":
        cache.unlink()
    elif damage == "torn":
        cache.write_bytes(cache.read_bytes()[:-3])
    log.upsert(B0, *(row(i, "new") for i in range(0, 20, 3)))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    left = LakeRound.plan(lake, log)
    log.upsert(B0, row(99))
    left.write(B0)
    (orphan,) = [f.path for f in upkeep.list_files(left.committer.prefix(left.round_id))]
    upkeep.delete([orphan])
    assert not local(orphan).exists()
    assert not Path(f"{local(orphan)}.offsets").exists()


def test_a_handle_carries_no_secret(tmp_path: Path) -> None:
    options: dict[str, Any] = {"s3.access-key-id": "hidden", "s3.secret-access-key": "hidden", "s3.region": "open"}
    lake = load({"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w", **options})
    handle = lake.open_committer(make_table(lake)).begin(new_round_id())
    assert b"hidden" not in handle
    assert b"open" in handle
    lake.connection.close()


@pytest.mark.parametrize("spell", [lambda p: p.as_uri(), lambda p: f"file://{p}", str], ids=["uri", "file://", "path"])
def test_a_folder_with_blanks_and_signs(tmp_path: Path, spell: Any) -> None:
    folder = tmp_path / "a b ü+=1"
    lake = load({"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": spell(folder)})
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(2, "new"))
    left = LakeRound.plan(lake, log).write(B0)
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    upkeep = lake.open_maintenance(log.table)
    orphans = {f.path for f in upkeep.list_files()} - upkeep.references()
    assert len(orphans) == 1
    assert upkeep.delete(orphans) > 0
    assert {f.path for f in upkeep.list_files()} == upkeep.references()
    assert list(upkeep.list_files(left.committer.prefix(left.round_id))) == []
    lake.connection.close()
