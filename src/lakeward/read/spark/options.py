# SPDX-License-Identifier: Apache-2.0
"""Options of `format("lakeward")`, read once and checked: a wrong value names itself."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lakeward.errors import InvalidRequest
from lakeward.model import Bucket, OffsetMap, TablePath
from lakeward.protocol.routes import DEFAULT_PORT
from lakeward.read.plan import AsOf, ReadMode, parse_as_of

SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode", "trigger"})
"""Options of the query itself, which Spark hands to its sources and sinks too."""

KNOWN = (
    "server",
    "table",
    "path",
    "hot",
    "mode",
    "as_of",
    "cut",
    "at_least",
    "starting",
    "startingoffsets",
    "startingtimestamp",
    "max_rows",
    "system_columns",
    "changelog",
    "lease_s",
    "columns",
    "kind",
)
KINDS = ("append", "upsert", "delete")


@dataclass(frozen=True, kw_only=True)
class StartAt:
    """Where a streaming read begins: `earliest`, `latest`, an offset map, or a moment."""

    kind: str
    offsets: OffsetMap | None = None
    at_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    table: TablePath
    hot_name: str
    hot_options: dict[str, str]
    mode: ReadMode = ReadMode.UNION
    as_of: AsOf | None = None
    cut: str | None = None
    at_least: str | None = None
    starting: StartAt = StartAt(kind="earliest")
    max_rows: int | None = None
    system_columns: bool = False
    changelog: bool = False
    lease_s: float = 900.0
    columns: tuple[str, ...] | None = None
    kind: str | None = None
    """The kind of write: append, upsert or delete; None: append to log tables, upsert into PK tables."""


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Spark hands option names over in any case. `table` may also come from `.load("db.t")`."""
    lower_options = {k.lower(): v for k, v in options.items()}
    for key in lower_options:
        if key not in KNOWN and key not in SPARKS_OWN:
            raise InvalidRequest(
                what=f"option {key!r} of format lakeward", reason=f"known options are {', '.join(KNOWN)}"
            )
    if lower_options.get("kind", KINDS[0]) not in KINDS:
        raise InvalidRequest(what="option kind", reason=f"{lower_options['kind']!r} is not append, upsert or delete")
    table = lower_options.get("table") or lower_options.get("path")
    if not table:
        raise InvalidRequest(
            what="format lakeward", reason='name the table: .load("db.table") or .option("table", "db.table")'
        )
    as_of = lower_options.get("as_of")
    return SourceOptions(
        table=TablePath.parse(table),
        hot_name=lower_options.get("hot", "embedded"),
        hot_options={"server": find_server(lower_options.get("server"))},
        mode=ReadMode.parse(lower_options.get("mode", "union")),
        as_of=parse_as_of(as_of) if as_of else None,
        cut=lower_options.get("cut"),
        at_least=lower_options.get("at_least"),
        starting=parse_start(_starting(lower_options)),
        max_rows=_number("max_rows", lower_options.get("max_rows")),
        system_columns=_flag("system_columns", lower_options.get("system_columns", "false")),
        changelog=_flag("changelog", lower_options.get("changelog", "false")),
        lease_s=float(_number("lease_s", lower_options.get("lease_s")) or 900),
        columns=tuple(c.strip() for c in lower_options["columns"].split(",")) if lower_options.get("columns") else None,
        kind=lower_options.get("kind"),
    )


def _starting(given: Mapping[str, str]) -> str:
    """One option with the names that other sources of Spark have for it besides."""
    names = [name for name in ("starting", "startingoffsets", "startingtimestamp") if name in given]
    if len(names) > 1:
        raise InvalidRequest(what=f"options {' and '.join(names)}", reason="they say one thing; give one of them")
    return given[names[0]] if names else "earliest"


def find_server(given: str | None) -> str:
    """The server's URL: given, from the environment, or this machine's."""
    return given or os.environ.get("LAKEWARD_SERVER") or f"http://127.0.0.1:{DEFAULT_PORT}"


def parse_start(text: str) -> StartAt:
    """`earliest`, `latest`, `{"0": 17, "2026-11-01/0": 5}`, or an ISO date and time."""
    if text in ("earliest", "latest"):
        return StartAt(kind=text)
    if text.lstrip().startswith("{"):
        try:
            offsets = {Bucket.parse(str(b)): int(o) for b, o in json.loads(text).items()}
            if any(o < 0 for o in offsets.values()):
                raise ValueError("offsets start at 0")
        except (ValueError, TypeError, AttributeError, InvalidRequest) as error:
            raise InvalidRequest(
                what="option starting", reason=f"{text!r} is no map of bucket to offset: {error}"
            ) from error
        return StartAt(kind="offsets", offsets=OffsetMap(offsets))
    moment = parse_as_of(text)
    if not isinstance(moment, datetime):
        raise InvalidRequest(
            what="option starting", reason=f"{text!r} is not earliest, latest, an offset map, or a date and time"
        )
    return StartAt(kind="time", at_ms=int(moment.astimezone(UTC).timestamp() * 1000))


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InvalidRequest(what=f"option {name}", reason=f"{text!r} is no whole number above 0")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(what=f"option {name}", reason=f"{text!r} is neither true nor false")
    return text.lower() == "true"
