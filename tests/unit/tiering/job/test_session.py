# SPDX-License-Identifier: Apache-2.0
"""What the Spark session is made of, and what is refused before it starts. No session is started here."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config.java import Java
from lakeward.errors import InvalidConfig, SparkUnsupported, UnsafeLake
from lakeward.lake.hudi.sparkbundle import check_spark
from lakeward.spi import Plugin
from lakeward.tiering.job.arguments import parse_conf
from lakeward.tiering.job.classarchive import find_archive
from lakeward.tiering.job.session import (
    SessionOptions,
    check_location,
    check_master,
    is_same_machine,
    load_hudi,
    session_conf,
)
from lakeward.tiering.work.writeorder import WriteOrder
from tests.unit.tiering.world import World


@pytest.mark.parametrize(
    ("master", "conf"),
    [("sc://host:15002", {}), ("local[2]", {"spark.remote": "sc://host"}), (None, {"spark.api.mode": "connect"})],
)
def test_spark_connect_is_refused_in_words(master: str | None, conf: dict[str, str]) -> None:
    with pytest.raises(SparkUnsupported, match="RDD"):
        check_master(master, conf)


def test_ordinary_masters_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    for master in ("local[*,4]", "spark://host:7077", "yarn", None):
        check_master(master, {})


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*,4]", True),
        ("local-cluster[2,1,512]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://far:7077", False),
        ("yarn", False),
    ],
)
def test_which_masters_share_this_machines_disk(master: str, expected: bool) -> None:
    assert is_same_machine(master) is expected


def test_a_file_warehouse_with_executors_elsewhere_is_refused() -> None:
    for location in ("file:///lake/db/t", "/lake/db/t"):
        check_location("iceberg", location, "local[2]")
        with pytest.raises(UnsafeLake, match="shared storage"):
            check_location("iceberg", location, "spark://far:7077")
    check_location("iceberg", "s3://bucket/t", "spark://far:7077")


def test_the_sessions_settings(tmp_path: Path) -> None:
    java = Java(home=Path("/java"), version=17, origin="test")
    archive = find_archive(java, tmp_path)
    assert archive is not None
    given = {"spark.executor.memory": "2g", "spark.driver.extraJavaOptions": "-Dmine=1", "spark.ui.enabled": "true"}
    conf = session_conf(SessionOptions(master="local[2,4]", conf=given, hot="embedded"), java, archive)
    assert conf["spark.scheduler.mode"] == "FAIR"
    assert conf["spark.master"] == "local[2,4]"
    assert conf["spark.ui.enabled"] == "true", "the user's word wins"
    assert "-XX:TieredStopAtLevel=1 " in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dmine=1"), "the last word counts for Java too"
    assert conf["spark.ui.retainedTasks"] == "100"
    assert "ArchiveClassesAtExit" in conf["spark.driver.extraJavaOptions"]
    assert "token" in conf["spark.redaction.regex"]
    kept_memory = "spark.executorEnv.MIMALLOC_PURGE_DELAY"
    assert int(conf[kept_memory]) > 10, "longer than by itself"
    reading = session_conf(SessionOptions(), java, None)
    assert kept_memory not in reading
    assert "Tiered" not in reading["spark.driver.extraJavaOptions"], "Spark's own work wants the whole compiler"
    submitted = session_conf(SessionOptions(), None, None, is_submitted=True)
    assert "spark.master" not in submitted, "spark-submit has chosen it"


def test_workers_are_forked_from_a_warm_daemon_where_they_run_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    key = "spark.python.daemon.module"
    assert (
        session_conf(SessionOptions(master="local[2,4]", hot="embedded"), None, None)[key] == "lakeward.tiering.daemon"
    )
    for master in ("spark://127.0.0.1:7077", "yarn", "local-cluster[2,1,512]"):
        assert key not in session_conf(SessionOptions(master=master, hot="embedded"), None, None), (
            "their Python may have nothing of ours"
        )
    assert key not in session_conf(SessionOptions(master="local[2,4]"), None, None), "no tiering job"
    packed = SessionOptions(master="local[2]", conf={"spark.pyspark.python": "./env/bin/python"}, hot="embedded")
    assert key not in session_conf(packed, None, None)


def test_a_session_with_hudi_joins_what_the_user_gave() -> None:
    given = {"spark.jars": "/mine.jar", "spark.sql.extensions": "my.Extension", "spark.driver.memory": "8g"}
    java = Java(home=Path("/java"), version=17, origin="test")
    conf = session_conf(SessionOptions(conf=given, hot="embedded", hudi=Path("/hudi.jar")), java, None)
    assert conf["spark.jars"] == "/hudi.jar,/mine.jar"
    assert conf["spark.sql.extensions"] == "org.apache.spark.sql.hudi.HoodieSparkSessionExtension,my.Extension"
    assert conf["spark.serializer"] == "org.apache.spark.serializer.KryoSerializer"
    assert conf["spark.driver.memory"] == "8g", "the user's word wins"
    assert "Tiered" not in conf["spark.driver.extraJavaOptions"], "Hudi's own code works in this JVM"
    assert "spark.jars" not in session_conf(SessionOptions(hot="embedded"), java, None)


def test_a_job_of_another_pool_has_no_hudi() -> None:
    assert load_hudi("default") is None


@pytest.mark.parametrize("pyspark", ["3.4.4", "4.0.1", "4.3.0", "35.1"])
def test_pool_hudi_on_another_pyspark_is_refused_with_the_way_out(pyspark: str) -> None:
    check_spark("3.5.9")
    with pytest.raises(SparkUnsupported, match=f"pool hudi on PySpark {pyspark}.*for PySpark 3.5 alone") as refused:
        check_spark(pyspark)
    assert "pip install 'lakeward[hudi-pool]', then hudi-pool/bin/lakeward tier --pool hudi" in refused.value.message


def test_conf_pairs_are_checked() -> None:
    assert parse_conf(["spark.a=b=c"]) == {"spark.a": "b=c"}
    for wrong in ("spark.a", "a=b"):
        with pytest.raises(InvalidConfig, match=r"spark\.key=value"):
            parse_conf([wrong])


def test_a_write_order_travels_as_bytes() -> None:
    world = World()
    order = WriteOrder(
        round_id=world.round().round_id,
        owner=world.owner(3),
        table=world.table,
        handle=b"\x00\xff",
        hot=Plugin(name="embedded", options={"server": "http://here"}),
        lake=Plugin(name="iceberg"),
        deadline_at_ms=17,
        flag="/tmp/flag",
    )
    assert WriteOrder.from_bytes(order.to_bytes()) == order
