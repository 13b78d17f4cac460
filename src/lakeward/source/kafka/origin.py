# SPDX-License-Identifier: Apache-2.0
"""Questions to Kafka's brokers, through the client that Spark's connector brings: topics, their ids, offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeward.errors import InvalidRequest, SourceUnavailable

ASK_MS = 30_000


@dataclass(frozen=True)
class Topic:
    """`topic_id` changes when a topic is deleted and created again."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class Brokers:
    def __init__(self, spark: Any, source: str, options: Mapping[str, str]) -> None:
        self.source = source
        self._jvm = spark.sparkContext._jvm
        settings = self._jvm.java.util.Properties()
        for key, value in {"default.api.timeout.ms": str(ASK_MS), **options}.items():
            settings.put(key, value)
        self._admin = self._ask(lambda: self._class("AdminClient").create(settings))

    def close(self) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(5))

    def topics(self, pattern: str) -> dict[str, Topic]:
        """The topics of these names, comma-separated, or that match the pattern as a whole."""
        names = self._ask(lambda: [str(n) for n in self._admin.listTopics().names().get()])
        chosen = set(pattern.split(","))
        try:
            matcher = re.compile(pattern)
        except re.error as error:
            raise InvalidRequest(what=f"topics {pattern}", reason=f"not a pattern: {error}") from error
        matched = [name for name in names if name in chosen or matcher.fullmatch(name)]
        described = self._ask(lambda: dict(self._admin.describeTopics(self._list(matched)).allTopicNames().get()))
        return {
            name: Topic(name, str(d.topicId()), tuple(sorted(int(p.partition()) for p in d.partitions())))
            for name, d in sorted(described.items())
        }

    def ends(self, topics: Sequence[Topic]) -> dict[tuple[str, int], int]:
        """Behind the last message of each partition that a reader of committed messages may see."""
        return self._offsets(topics, self._class("OffsetSpec").latest())

    def start(self, topic: Topic, start: str) -> dict[int, int]:
        """Offsets of the partitions where a source begins. Raises `InvalidRequest`."""
        spec = self._class("OffsetSpec")
        named = {int(p): int(n) for t, p, n in re.findall(r"([^:,]+):(\d+):(\d+)", start) if t == topic.name}
        if named or start == "earliest" or (":" in start and not start[:4].isdigit()):
            return {p: n for (_, p), n in self._offsets([topic], spec.earliest()).items()} | named
        latest = {p: n for (_, p), n in self._offsets([topic], spec.latest()).items()}
        if start == "latest":
            return latest
        try:
            at_ms = round(datetime.fromisoformat(start).timestamp() * 1000)
        except ValueError:
            reason = "write earliest, latest, a time as 2026-01-31T12:00:00+00:00, or topic:partition:offset,..."
            raise InvalidRequest(what=f"--start {start}", reason=reason) from None
        later = {p: n for (_, p), n in self._offsets([topic], spec.forTimestamp(at_ms)).items()}
        return {p: n if n >= 0 else latest[p] for p, n in later.items()}

    def _offsets(self, topics: Sequence[Topic], spec: Any) -> dict[tuple[str, int], int]:
        asked = self._jvm.java.util.HashMap()
        for topic in topics:
            for partition in topic.partitions:
                asked.put(self._jvm.org.apache.kafka.common.TopicPartition(topic.name, partition), spec)
        committed = self._class("ListOffsetsOptions")(self._jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED)
        listed = self._ask(lambda: dict(self._admin.listOffsets(asked, committed).all().get()))
        return {(str(tp.topic()), int(tp.partition())): int(info.offset()) for tp, info in listed.items()}

    def _class(self, name: str) -> Any:
        return getattr(self._jvm.org.apache.kafka.clients.admin, name)

    def _list(self, values: Sequence[str]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _ask(self, call: Any) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return call()
        except Py4JJavaError as error:
            reason = " ".join(str(error.java_exception).split())[:300]
            raise SourceUnavailable(source=self.source, origin="Kafka", reason=reason) from error
