# SPDX-License-Identifier: Apache-2.0
"""A kind of source of its own, as somebody else would write one: numbers up to a count, with an option for the count.
The walk of CONTRIBUTING is followed by tests/source/test_walk.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.model import TablePath
from lakeward.protocol.sources import Frame, FrameKind
from lakeward.spi.source import Source, SourceGroup, SourceKind, SourceOption, SourceRun, State, Step

GROUP = 10


class ToySource(Source):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def read(self, state: State, run: SourceRun) -> Iterator[SourceGroup]:
        path = TablePath.parse(f"{self.config['to']}.numbers")
        run.client.create_table(str(path), "n bigint", if_not_exists=True)
        at, count = int(state.get("at", 0)), int(self.config["count"])
        while at < count and not run.is_stopping():
            stop = min(at + GROUP, count)
            rows = pa.table({"n": pa.array(range(at, stop), pa.int64())})
            frame = Frame(table=path, kind=FrameKind.APPEND)
            yield SourceGroup(state={"at": stop}, position=f"{stop}", steps=[Step(frame=frame, rows=rows)])
            at = stop

    def close(self) -> None:
        pass


class ToyKind(SourceKind):
    name, extra = "toy", ""
    options = (
        SourceOption(name="count", help="numbers to bring.", kind=int, default=1),
        SourceOption(name="lengthen_to", help="a higher count for one run.", kind=int, is_for_run=True),
    )

    def configure(self, url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if not options.get("to"):
            raise InvalidRequest(what="--to", reason="name a database")
        return {"to": options["to"], "count": options["count"]}

    def open(self, config: Mapping[str, Any], secret: str | None = None) -> Source:
        return ToySource({**config, "count": config.get("lengthen_to", config["count"])})


def load() -> ToyKind:
    return ToyKind()
