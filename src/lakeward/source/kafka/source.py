# SPDX-License-Identifier: Apache-2.0
"""The Kafka source: Structured Streaming reads what is new of all topics, tasks send it to the server, and the driver
commits a micro-batch as one group with the offsets behind it. Spark's checkpoint is thrown away after each query."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lakeward.errors import (
    InvalidRequest,
    LakewardError,
    SourceStopped,
    SourceUnavailable,
    TableNotFound,
    from_wire,
)
from lakeward.protocol.sources import GroupFile, SourceLag
from lakeward.source.kafka.origin import Brokers, Topic
from lakeward.source.kafka.registry import load_credentials
from lakeward.source.kafka.schema import topic_columns
from lakeward.source.kafka.task import RESULT, TaskPlan
from lakeward.spi.source import Source, SourceGroup, SourceRun, State

POLL_S = 1.0
MOST_OFFSETS = 500_000
"""Messages of one micro-batch, of all topics together."""

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
JARS_VARIABLE = "LAKEWARD_KAFKA_JARS"
"""Paths of the connector's jars, comma-separated, where Spark is not to download them."""


class KafkaSource(Source):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        self._spark: Any = None
        self._brokers: Brokers | None = None

    def close(self) -> None:
        """Spark stays: a process has one session, and the next attempt needs it again."""
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.close()

    def read(self, state: State, run: SourceRun) -> Iterator[SourceGroup]:
        self._spark = self._spark or open_spark()
        self.config |= {"source": run.name, "registry_auth": load_credentials()}
        options = {"bootstrap.servers": str(self.config["brokers"]), **self.config["client"]}
        self._brokers = brokers = Brokers(self._spark, run.name, options)
        topics: dict[str, dict[str, Any]] = {k: dict(v) for k, v in state.get("topics", {}).items()}
        while not run.is_stopping() and not run.status.source.paused:
            present = brokers.topics(str(self.config["topics"]))
            if not present:
                raise SourceUnavailable(
                    source=run.name, origin="Kafka", reason=f"no topic matches {self.config['topics']}"
                )
            self._check(run.name, topics, present)
            late = self._late(run.name, topics, present)
            if self._add_topics(run, topics, present):
                yield SourceGroup(state={"topics": topics}, position=_position(topics))
            behind, ends = self._behind(run, topics, present)
            if behind:
                yield from self._query(run, topics, late)
                if run.is_stopping() or run.status.source.paused:
                    return
                _move_to(topics, ends)
            for name, partition in late:
                topics[name]["offsets"][str(partition)] = 0
            if not late and not behind:
                if run.until_idle:
                    return
                _pause(run)

    # ---- topics ------------------------------------------------------------------------------------------------------
    def _check(self, source: str, topics: dict[str, dict[str, Any]], found: Mapping[str, Topic]) -> None:
        """Raises `SourceStopped` for a topic that was deleted, or deleted and created again."""
        for name, body in list(topics.items()):
            topic = found.get(name)
            if topic is not None and topic.topic_id == body["id"]:
                continue
            if self.config.get("on_recreated") == "continue":
                del topics[name]
                continue
            what = "is gone" if topic is None else "was deleted and created again"
            raise SourceStopped(
                source=source,
                where=f"topic {name}",
                reason=f"it {what}; the table has the rows of the earlier topic",
                advice="To go on with the new topic behind these rows, drop the source (`lakeward source drop "
                f"{source}`), and ingest again with --on-recreated continue; for an equal table drop the table too",
            )

    def _late(self, source: str, topics: Mapping[str, Any], found: Mapping[str, Topic]) -> list[tuple[str, int]]:
        """Partitions that a topic got since. Raises `SourceStopped` for a table with a primary key: keys move between
        partitions, and Kafka has no order across them."""
        late = [
            (name, partition)
            for name, body in topics.items()
            for partition in found[name].partitions
            if str(partition) not in body["offsets"]
        ]
        if late and self.config["key"] and self.config.get("on_new_partitions") != "continue":
            raise SourceStopped(
                source=source,
                where=f"topic {late[0][0]}",
                reason="it has new partitions, and Kafka has no order between messages of one key in two partitions",
                advice=f"Run `lakeward ingest {source} --on-new-partitions continue` once. Where messages from "
                "before the change are unread, a key that moved may keep an older row until its next message",
            )
        return late

    def _add_topics(self, run: SourceRun, topics: dict[str, dict[str, Any]], found: Mapping[str, Topic]) -> bool:
        assert self._brokers is not None
        new = [topic for name, topic in found.items() if name not in topics]
        if new and "table" in self.config and len(topics) + len(new) > 1:
            raise InvalidRequest(what="--table", reason=f"{len(found)} topics match; name a database with --to instead")
        for topic in new:
            offsets = self._brokers.start(topic, str(self.config.get("start", "earliest")))
            to = str(self.config.get("table") or f"{self.config['to']}.{re.sub(r'[^A-Za-z0-9_-]', '_', topic.name)}")
            self._create_table(run, topic, to)
            topics[topic.name] = {"id": topic.topic_id, "to": to, "offsets": {str(p): n for p, n in offsets.items()}}
        return bool(new)

    def _create_table(self, run: SourceRun, topic: Topic, to: str) -> None:
        try:
            run.client.show_table(to)
            return
        except TableNotFound:
            pass
        run.client.create_table(
            to,
            topic_columns(topic.name, self.config, self._samples(topic)),
            primary_key=tuple(self.config["key"]) or None,
            buckets=int(self.config["buckets"]),
            freshness=self.config.get("freshness"),
            if_not_exists=True,
        )

    def _samples(self, topic: Topic) -> list[bytes]:
        """Values of the topic's first messages, where columns may come from them."""
        if self.config.get("columns") or self.config.get("schema_file") or self.config["format"] == "raw":
            return []
        frame = self._kafka(self._spark.read).option("subscribe", topic.name).load()
        return [bytes(row.value) for row in frame.select("value").limit(1000).collect() if row.value is not None]

    def _behind(
        self, run: SourceRun, topics: Mapping[str, Any], found: Mapping[str, Topic]
    ) -> tuple[int, Mapping[tuple[str, int], int]]:
        """How many messages are unread, and the ends of the partitions."""
        assert self._brokers is not None
        ends = self._brokers.ends([found[name] for name in topics])
        behind = sum(
            max(0, end - int(topics[name]["offsets"].get(str(partition), 0))) for (name, partition), end in ends.items()
        )
        at_ms = run.status.source.committed_at_ms
        seconds = max(0.0, time.time() - at_ms / 1000) if behind and at_ms else 0.0
        run.report("streaming", _position(topics), SourceLag(messages=behind, seconds=round(seconds, 3)))
        return behind, ends

    # ---- queries -----------------------------------------------------------------------------------------------------
    def _kafka(self, reader: Any) -> Any:
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.config["brokers"])
        reader = reader.option("kafka.isolation.level", "read_committed").option("includeHeaders", "true")
        for key, value in self.config["client"].items():
            reader = reader.option(f"kafka.{key}", value)
        return reader

    def _query(self, run: SourceRun, topics: dict[str, dict[str, Any]], late: Sequence[Any]) -> Iterator[SourceGroup]:
        """One streaming query over all that the topics have now, micro-batch after micro-batch."""
        handed: queue.Queue[SourceGroup | Exception | None] = queue.Queue()
        stored = threading.Event()
        failure: list[LakewardError] = []

        def handle(frame: Any, batch: int) -> None:
            try:
                group = self._batch(run, topics, frame)
            except LakewardError as error:
                failure.append(error)
                raise
            if group is not None:
                stored.clear()
                handed.put(group)
                stored.wait()
                if failure:
                    raise failure[0]

        checkpoint = tempfile.mkdtemp(prefix="lakeward-kafka-")
        offsets = {name: dict(body["offsets"]) for name, body in topics.items()}
        frame = (
            self._kafka(self._spark.readStream)
            .option("assign", json.dumps({name: [int(p) for p in parts] for name, parts in offsets.items()}))
            .option("startingOffsets", json.dumps(offsets))
            .option("maxOffsetsPerTrigger", MOST_OFFSETS)
            .load()
        )
        query = frame.writeStream.foreachBatch(handle).trigger(availableNow=True)
        query = query.option("checkpointLocation", f"file://{checkpoint}").start()

        def wait() -> None:
            try:
                query.awaitTermination()
                handed.put(None)
            except Exception as error:  # noqa: BLE001 - it is raised in the reading thread
                handed.put(error)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        try:
            while (item := handed.get()) is not None:
                if isinstance(item, Exception):
                    raise failure[0] if failure else self._translated(run.name, item)
                yield item
                stored.set()
                if run.is_stopping() or run.status.source.paused:
                    break
                self._report_batch(run, topics)
        finally:
            if query.isActive:
                failure.append(SourceUnavailable(source=run.name, origin="Kafka", reason="the query was ended"))
                stored.set()
                with suppress(Exception):
                    query.stop()
            waiter.join(30)
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _report_batch(self, run: SourceRun, topics: Mapping[str, Any]) -> None:
        run.report("streaming", _position(topics))

    def _batch(self, run: SourceRun, topics: dict[str, dict[str, Any]], frame: Any) -> SourceGroup | None:
        """Called by Spark for each micro-batch: the tasks send their files, and offsets move."""
        assert self._brokers is not None
        self._check(run.name, dict(topics), self._brokers.topics(str(self.config["topics"])))
        plan = TaskPlan(
            server=run.client.url,
            source=run.name,
            epoch=run.status.source.epoch,
            group=run.status.source.group + 1,
            config=self.config,
            targets={name: body["to"] for name, body in topics.items()},
        )
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")

        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            return plan(batches)

        try:
            results = frame.select(*columns).mapInArrow(task, RESULT).collect()
        except (PySparkException, Py4JError) as error:
            raise self._translated(run.name, error) from error
        for row in results:
            if row.error:
                raise from_wire(json.loads(row.error))
        results.sort(key=lambda row: (row.topic, row.partition))
        for row in results:
            body = topics[row.topic]["offsets"]
            body[str(row.partition)] = max(int(body.get(str(row.partition), 0)), int(row.next))
        files = [GroupFile(name=row.file, size=row.size) for row in results if row.size]
        if not results:
            return None
        state = json.loads(json.dumps({"topics": topics}))
        return SourceGroup(state=state, position=_position(topics), files=files)

    def _translated(self, source: str, error: BaseException) -> LakewardError:
        """Spark's text as a typed error: data that Kafka removed, or a broker that is away."""
        text = str(error)
        if "data may have been lost" in text or "some data may have been missed" in text:
            return SourceStopped(
                source=source,
                where="Kafka",
                reason="messages that were not read yet are gone (retention, or a topic that was made again)",
                advice="Raise the topic's retention; to go on without them, drop the source "
                f"(`lakeward source drop {source}`) and ingest again, which reads once more what Kafka still has",
            )
        return SourceUnavailable(source=source, origin="Kafka or Spark", reason=_last_words(text))


def open_spark() -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    from lakeward.config.java import use_java

    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lakeward-ingest").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
    jars = os.environ.get(JARS_VARIABLE)
    if jars:
        builder = builder.config("spark.jars", jars)
    else:
        builder = builder.config("spark.jars.packages", f"{CONNECTOR}:{pyspark.__version__}")
    return builder.master(os.environ.get("LAKEWARD_SPARK_MASTER", "local[*]")).getOrCreate()


def _last_words(text: str) -> str:
    """The error at the end of a worker's traceback, or the text itself."""
    errors = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return " ".join((errors[-1] if errors else text).split())[:600]


def _position(topics: Mapping[str, Any]) -> str:
    total = sum(int(n) for body in topics.values() for n in body["offsets"].values())
    partitions = sum(len(body["offsets"]) for body in topics.values())
    return f"{total:,} in {len(topics)} topics, {partitions} partitions"


def _move_to(topics: Mapping[str, Any], ends: Mapping[tuple[str, int], int]) -> None:
    """A query has read to these ends. Behind its last message there may be markers of transactions, and messages that
    were aborted or compacted: they have offsets and are no messages."""
    for (name, partition), end in ends.items():
        offsets = topics[name]["offsets"]
        if str(partition) in offsets:
            offsets[str(partition)] = max(int(offsets[str(partition)]), end)


def _pause(run: SourceRun) -> None:
    ends_at = time.monotonic() + POLL_S
    while time.monotonic() < ends_at and not run.is_stopping():
        time.sleep(0.05)
