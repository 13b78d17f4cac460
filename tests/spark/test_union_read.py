# SPDX-License-Identifier: Apache-2.0
"""Union read in Spark: DataFrames, views, the Data Source and batch writes, against a real server with rounds on
threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeward.spark
from lakeward.client import Client, Table
from lakeward.errors import (
    InvalidRequest,
    LakeTampered,
    ReadTooFarAhead,
    ServerUnavailable,
    SnapshotGone,
    TableNotFound,
)
from lakeward.hot.embedded.plugin import EmbeddedPlugin
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.model import Bucket, CutState, OffsetMap
from lakeward.protocol.readplan import WriteToken
from lakeward.protocol.tables import ServerInfo
from lakeward.read.arrow import read, request_of
from lakeward.read.spark.batch import FIELD_IDS, read_frame
from lakeward.read.spark.lakefiles import FileGroups
from lakeward.read.spark.lakescan import LakeScan
from lakeward.spi import LakeDelete, LakeFile
from lakeward_testing.ports import free_port
from lakeward_testing.proxy import CuttingProxy
from lakeward_testing.waiting import wait_until
from tests.property.union_program import Step, step
from tests.spark.processes import Job, Server, tier_now
from tests.spark.programs import run_in_spark

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    made = Job(server, "threads", spark=False)
    yield made
    made.kill()


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in frame.collect()), key=repr)


@pytest.fixture(scope="module")
def state(server: Server, job: Job) -> Iterator[tuple[Table, dict[tuple[str, int], tuple[Any, ...]]]]:
    """A partitioned PK table: several rounds with updates and deletes in the lake, and a hot tail that replaces lake
    rows.

    Both partitions share bucket numbers and offsets; a column came in between."""
    with server.connect() as client:
        columns = "p string not null, id bigint not null, v string, d decimal(10, 2), small tinyint"
        table = client.create_table(
            "db.state", columns, primary_key="p,id", partition_by="p", buckets=2, freshness="5 min"
        )
        held: dict[tuple[str, int], tuple[Any, ...]] = {}

        def upsert(ids: range, mark: str) -> None:
            made: list[dict[str, Any]] = [
                {"p": p, "id": i, "v": f"{mark}{i}", "d": Decimal(i), "small": i % 100} for p in ("a", "b") for i in ids
            ]
            table.upsert(made)
            held.update({(r["p"], r["id"]): (r["p"], r["id"], r["v"], r["d"], r["small"], None) for r in made})

        upsert(range(40), "first")
        tier_now(client, table)
        upsert(range(10, 20), "second")
        table.delete([{"p": "a", "id": i} for i in range(5)])
        for i in range(5):
            del held["a", i]
        tier_now(client, table)
        table = client.alter_table("db.state", add_columns="extra int")
        table.upsert([{"p": "b", "id": i, "v": "hot", "d": None, "small": 1, "extra": i} for i in range(15, 25)])
        held.update({("b", i): ("b", i, "hot", None, 1, i) for i in range(15, 25)})
        table.delete([{"p": "b", "id": 39}])
        del held["b", 39]
        yield table, held


def test_a_pk_table_is_lake_less_replaced_rows_plus_tail(spark: Any, server: Server, state: Any) -> None:
    table, held = state
    frame = lakeward.spark.read(spark, table.path, server=server.url)
    assert frame.columns == ["p", "id", "v", "d", "small", "extra"]
    assert dict(frame.dtypes)["small"] == "tinyint"
    assert rows(frame) == sorted(held.values(), key=repr)
    assert frame.lakeward_bound.snapshot_id is not None
    assert frame.lakeward_bound.tail_rows > 0


@pytest.mark.datasource
def test_the_data_source_gives_the_same_and_takes_filters(spark: Any, server: Server, state: Any) -> None:
    table, held = state
    frame = spark.read.format("lakeward").option("server", server.url).load(table.path)
    assert rows(frame) == sorted(held.values(), key=repr)
    few = frame.filter("p = 'b' and id >= 20 and v = 'hot'")
    assert (frame.rdd.getNumPartitions(), few.rdd.getNumPartitions()) == (4, 2), (
        "buckets of the other partition are not planned"
    )
    assert rows(few.select("id")) == [(20,), (21,), (22,), (23,), (24,)]


def test_filters_and_projections_reach_the_parquet_scan(spark: Any, server: Server, state: Any) -> None:
    table, _ = state
    frame = lakeward.spark.read(spark, table.path, server=server.url).filter("id > 30").select("v")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    scans = [line for line in plan.splitlines() if "FileScan parquet" in line and "delete" not in line]
    assert scans
    assert all("GreaterThan(id,30)" in line for line in scans if "PushedFilters" in line and "v#" in line)
    assert not any("d#" in line.split("ReadSchema")[-1] for line in scans)


@given(st.lists(step, min_size=3, max_size=5))
@settings(max_examples=2)
def test_a_union_read_in_spark_equals_the_dict_after_every_step(spark: Any, steps: list[Step]) -> None:
    """The same programs as in tests/property/test_union_read.py, read by Spark's own Parquet scan."""
    run_in_spark(spark, steps)


@pytest.mark.parametrize("folder", ["plain", "day=a b%20ä+{1}"])
def test_deletes_are_found_by_file_and_row_whatever_the_path_and_renamed_columns_by_id(
    spark: Any, state: Any, tmp_path: Path, folder: str
) -> None:
    """A foreign engine's file: the column has another name in it, and a delete file spells the path in its own way."""
    table, _ = state
    place = tmp_path / folder
    place.mkdir()
    names = {"p": 1, "id": 2, "old_name": 3, "__bucket": 7, "__offset": 8, "__timestamp": 9}
    columns = {
        "p": ["a"] * 4,
        "id": list(range(4)),
        "old_name": ["v0", "v1", "v2", "v3"],
        "__bucket": pa.array([0] * 4, pa.int32()),
        "__offset": list(range(4)),
        "__timestamp": pa.array([0] * 4, pa.timestamp("us", "UTC")),
    }
    rows_ = pa.table(columns)
    fields = [f.with_metadata({"PARQUET:field_id": str(names[f.name])}) for f in rows_.schema]
    pq.write_table(rows_.cast(pa.schema(fields)), place / "data.parquet")
    gone = pa.table({"file_path": [f"file:{place}/data.parquet"], "pos": [1]})
    pq.write_table(gone, place / "deletes.parquet")
    delete = LakeDelete(path=str(place / "deletes.parquet"), content="positions", record_count=1)
    file = LakeFile(
        path=f"file://{place}/data.parquet",
        bucket=Bucket("a", 0),
        record_count=4,
        size_bytes=1,
        offsets=None,
        deletes=(delete,),
    )
    spark.conf.set(FIELD_IDS, "true")
    ids = {"p": 1, "id": 2, "v": 3, "__bucket": 7, "__offset": 8, "__timestamp": 9}
    scan = LakeScan(spark=spark, table=table.info, snapshot="1", columns=("id", "v"), field_ids=ids)
    frame = scan.frame(FileGroups((), (), (file,), {}))
    assert frame is not None
    assert rows(frame.select("id", "v")) == [(0, "v0"), (2, "v2"), (3, "v3")]
    lost = replace(file, path=f"file://{place}/lost.parquet", deletes=())
    with pytest.raises(LakeTampered, match="a data file cannot be read"):
        scan.frame(FileGroups((lost,), (), (), {}))


class Through(ServerConnection):
    """Data travels through a proxy that counts it."""

    port = 0

    def info(self, *, fresh: bool = False) -> ServerInfo:
        return replace(super().info(fresh=fresh), flight_uri=f"grpc://127.0.0.1:{self.port}")


def test_projections_and_filters_reach_the_flight_request(spark: Any, server: Server, client: Client) -> None:
    table = client.create_table(
        "db.wide", "id bigint not null, p int not null, text string", partition_by="p", lake=False
    )
    table.append([{"id": i, "p": i % 4, "text": f"{i}" * 400} for i in range(400)])
    sent = [0]

    def count(from_server: bool, size: int) -> None:
        sent[0] += size if from_server else 0

    proxy = CuttingProxy(("127.0.0.1", server.flight_port), count)
    connection = Through(server.url)
    connection.port = proxy.port
    plugin = EmbeddedPlugin({"server": server.url}, connection)

    def bytes_for(in_spark: bool, **options: Any) -> int:
        before = sent[0]
        request = request_of("db.wide", **options)
        if in_spark:
            frame, opened = read_frame(spark, plugin, request)
            frame.count()
            opened.close()
        else:
            read(plugin, request).to_table()
        return sent[0] - before

    try:
        bytes_for(False)
        for in_spark in (False, True):
            whole = bytes_for(in_spark)
            assert bytes_for(in_spark, columns=["id"]) < whole / 10, "the wide column does not travel"
            assert bytes_for(in_spark, filter=[("p", "=", 1)]) < whole / 2, "three partitions do not travel"
    finally:
        plugin.store().close()
        connection.close()
        proxy.close()


@pytest.mark.datasource
def test_wrong_options_say_what_to_do(spark: Any, server: Server, client: Client) -> None:
    client.create_table("db.opts", "id bigint not null, v string", primary_key="id", lake=False)

    def refused(words: str, table: str = "db.opts", stream: bool = False, **options: str) -> None:
        reader = spark.readStream if stream else spark.read
        with pytest.raises(Exception, match=words):
            found = reader.format("lakeward").options(server=server.url, **options).load(table)
            if stream:
                found.writeStream.format("noop").start().processAllAvailable()
            else:
                found.collect()

    refused("there is no table db.none", "db.none")
    refused("changelog", stream=True)
    refused("bucket 0 ends at 0", stream=True, changelog="true", starting='{"0": 5}')
    with pytest.raises(Exception, match="not append, upsert or delete"):
        spark.range(1).write.format("lakeward").options(server=server.url, kind="merge").mode("append").save("db.opts")
    with pytest.raises(Exception, match="overwrite"):
        spark.range(1).write.format("lakeward").options(server=server.url).mode("overwrite").save("db.opts")


@pytest.mark.datasource
@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("nonsense", "1", "known options are"),
        ("mode", "all", "union, lake, hot"),
        ("max_rows", "many", "no whole number above 0"),
        ("columns", "id,other", "there are id, v"),
        ("as_of", "yesterday", "neither a snapshot id nor"),
    ],
)
def test_a_wrong_option_is_refused_by_the_source_itself(
    server: Server, client: Client, option: str, value: str, words: str
) -> None:
    """As Spark asks it, in a process of Spark's; the test above has its words reach a query."""
    from lakeward.spark.source import LakewardDataSource

    client.create_table("db.asked", "id bigint not null, v string", lake=False, if_not_exists=True)
    source = LakewardDataSource({"path": "db.asked", "server": server.url, option: value})
    with pytest.raises(InvalidRequest, match=words):
        source.reader(source.schema()).partitions()


def without_filters() -> Any:
    """As on a Spark whose worker for filters has another name."""
    from lakeward.spark.source import LakewardDataSource

    class OwnFilters(LakewardDataSource):
        @classmethod
        def name(cls) -> str:
            return "lakeward_unfiltered"

        def is_asked_for_filters(self) -> bool:
            return False

    return OwnFilters


@pytest.mark.datasource
@pytest.mark.parametrize("is_enabled", [pytest.param("true", marks=pytest.mark.soak), "false"])
def test_where_filters_cannot_be_pushed_everything_is_read_and_spark_filters(
    spark: Any, server: Server, state: Any, is_enabled: str
) -> None:
    """A session that found the format by itself has push-down off; Spark refuses readers that take filters then."""
    table, held = state
    spark.dataSource.register(without_filters())
    spark.conf.set(PUSHDOWN, is_enabled)
    try:
        for name in ("lakeward", "lakeward_unfiltered") if is_enabled == "false" else ("lakeward_unfiltered",):
            few = spark.read.format(name).option("server", server.url).load(table.path).filter("p = 'b' and id >= 20")
            assert few.rdd.getNumPartitions() == 4, "no bucket is left out"
            assert rows(few) == sorted((row for (p, i), row in held.items() if p == "b" and i >= 20), key=repr)
    finally:
        spark.conf.set(PUSHDOWN, "true")


@pytest.mark.datasource
def test_bad_input_is_told_in_words_by_name_too(spark: Any, server: Server, client: Client, job: Job) -> None:
    table = client.create_table("db.bad", "id bigint not null", freshness="5 min")
    token = table.append([{"id": 1}])
    tier_now(client, table)
    ahead = WriteToken(table_id=table.info.table_id, offsets=OffsetMap({Bucket("", 0): 99}))
    nobody = f"http://127.0.0.1:{free_port()}"

    def refused(
        kind: type[Exception], words: str, path: str = "db.bad", *, by_name: bool = True, **options: str
    ) -> None:
        """By `read` as the error itself, by the format's name as its text: Spark knows no types of ours."""
        given: dict[str, Any] = {"server": server.url, **options}
        with pytest.raises(kind, match=words):
            lakeward.spark.read(spark, path, **given).collect()
        if by_name:
            with pytest.raises(Exception, match=f"(?s){kind.__name__}.*{words}"):
                spark.read.format("lakeward").options(**given).load(path).collect()

    assert lakeward.spark.read(spark, "db.bad", server=server.url, at_least=token).count() == 1
    assert spark.read.format("lakeward").options(server=server.url, at_least=str(token)).load("db.bad").count() == 1
    refused(ServerUnavailable, "is the server running", server=nobody)
    refused(ReadTooFarAhead, "99", at_least=str(ahead))
    refused(SnapshotGone, "history is kept from", as_of="17")
    refused(SnapshotGone, "history is kept from", as_of="2001-01-01", by_name=False)
    # By name: with the other options above.
    refused(TableNotFound, r"there is no table db\.none", "db.none", by_name=False)
    refused(InvalidRequest, "union, lake, hot", mode="all", by_name=False)
    for file in (server.folder / "data" / "warehouse" / "db" / "bad" / "data").rglob("*.parquet"):
        file.unlink()
    refused(LakeTampered, "a data file cannot be read")
    assert lakeward.spark.read(spark, "db.bad", server=server.url, mode="hot").count() == 1


def test_modes_and_history(spark: Any, server: Server, client: Client, job: Job) -> None:
    table = client.create_table("db.log", "id bigint not null", buckets=2, freshness="5 min")
    table.append([{"id": i} for i in range(10)])
    tier_now(client, table)
    first = client.read("db.log", mode="lake").bound.snapshot_id
    table.append([{"id": i} for i in range(10, 20)])
    tier_now(client, table)
    table.append([{"id": i} for i in range(20, 22)])
    client.create_cut("twenty-two", ["db.log"])
    table.append([{"id": i} for i in range(22, 25)])
    wait_until(lambda: client.cut("twenty-two").state is CutState.READY, what="the cut")

    def count(**options: Any) -> int:
        found: int = lakeward.spark.read(spark, "db.log", server=server.url, **options).count()
        return found

    assert count() == 25
    assert count(mode="lake") == 22, "rounds stopped at the cut, and freshness leaves them time"
    assert count(cut="twenty-two") == 22
    if hasattr(spark, "dataSource"):
        source = spark.read.format("lakeward").option("server", server.url).option("cut", "twenty-two")
        assert source.load("db.log").count() == 22
    assert count(mode="hot") == 25
    assert count(as_of=first) == 10
    lakeward.spark.view(spark, "db.log", server=server.url, name="seen")
    assert spark.sql("select sum(id) from seen").collect()[0][0] == sum(range(25))
    with pytest.raises(SnapshotGone):
        count(as_of="17")
    with pytest.raises(InvalidRequest, match="union, lake, hot"):
        count(mode="all")
    with pytest.raises(TableNotFound):
        lakeward.spark.read(spark, "db.nothing", server=server.url)


@pytest.mark.soak
@pytest.mark.datasource
def test_a_moment_between_snapshots_of_a_table_with_a_changelog(
    spark: Any, server: Server, client: Client, job: Job
) -> None:
    on = {"table.datalake.changelog": "default"}
    table = client.create_table("db.moments", "id bigint not null, v string", primary_key="id", properties=on)
    table.upsert([{"id": i, "v": "a"} for i in range(10)])
    tier_now(client, table)
    table.upsert([{"id": 0, "v": "b"}])
    moment = datetime.now(UTC) + timedelta(milliseconds=5)
    wait_until(lambda: datetime.now(UTC) > moment + timedelta(milliseconds=5), what="the moment to pass")
    table.upsert([{"id": 1, "v": "c"}])
    table.delete([{"id": 2}])
    tier_now(client, table)
    expected = {i: "b" if i == 0 else "a" for i in range(10)}
    source = spark.read.format("lakeward").option("server", server.url).option("as_of", moment.isoformat())
    for frame in (lakeward.spark.read(spark, "db.moments", server=server.url, as_of=moment), source.load("db.moments")):
        rows = frame.collect()
        assert {r["id"]: r["v"] for r in rows} == expected
        assert len(rows) == len(expected)


@pytest.mark.datasource
def test_batch_writes_append_and_upsert(spark: Any, server: Server, client: Client) -> None:
    client.create_table("db.sink", "id bigint not null, v string", buckets=2, lake=False)
    frame = spark.range(1000).selectExpr("id", "cast(id as string) as v").repartition(4)
    frame.write.format("lakeward").option("server", server.url).mode("append").save("db.sink")
    assert sorted(client.read("db.sink").to_table()["id"].to_pylist()) == list(range(1000))
    keyed = client.create_table("db.keyed", "id bigint not null, v string", primary_key="id", lake=False)
    keyed.upsert([{"id": 1, "v": "a"}])
    spark.createDataFrame([(1, "b"), (2, "c")], "id long, v string").write.format("lakeward").option(
        "server", server.url
    ).mode("append").save("db.keyed")
    found = keyed.lookup([{"id": 1}, {"id": 2}]).select(["id", "v"]).to_pylist()
    assert found == [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]
