# SPDX-License-Identifier: Apache-2.0
"""`lakeward trace`: one row's way from the log to where the lake has it now, with how long each step took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Server, Table, duration, moment, print_json
from lakeward.errors import InvalidRequest
from lakeward.model import Bucket, OffsetRange, TableInfo
from lakeward.protocol import routes
from lakeward.protocol.codec import encode

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.client import Client
    from lakeward.verify.rowtrace import RowTrace, TracedChange

MOST_ROUNDS = 10_000


def register(app: typer.Typer) -> None:
    app.command("trace")(trace)


def trace(
    table: Table,
    key: Annotated[
        str | None,
        typer.Option("--key", help='The primary key: a value, or {"region": "eu", "id": 7} where it has columns.'),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="A record of the log: BUCKET:OFFSET, or PARTITION/BUCKET:OFFSET.")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Shows every change of one row that the log still has: when it was durable, which round brought it to the lake and
    how long each step took, the file and position, what moved it since, and what took its predecessor out.

    Example: lakeward trace shop.orders --key 7"""
    from lakeward.verify.rowtrace import key_match, trace_rows

    if (key is None) == (at is None):
        raise InvalidRequest(what="trace", reason="name the row by --key, or by --at")
    with open_client(server) as client:
        opened = client.table(table)
        if key is not None:
            values = _key(opened.info, key)
            ((bucket, _),) = opened.router.route(values)
            traced = trace_rows(client.plugin, opened.info, bucket, key_match(values), values.column_names)
        else:
            bucket, offset = _address(at or "")
            only = OffsetRange(offset, offset + 1)
            traced = trace_rows(client.plugin, opened.info, bucket, _any, [], only)
        rounds = _rounds(client, table)
        writers = [_writer(client, table, bucket, change.offset) for change in traced.changes]
    if as_json:
        shown = encode(traced)
        for change, writer in zip(shown["changes"], writers, strict=True):
            change["writer"] = writer
            change["round"] = rounds.get(str((change["entry"] or {}).get("round_id")))
        print_json({"table": table, **shown})
    else:
        name = f"key {key}" if key is not None else f"offset {offset}"
        print("\n".join(_lines(f"{table}, {name}, bucket {bucket}", traced, rounds, writers)))
    if not traced.changes:
        raise typer.Exit(1)


def _any(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa

    return pa.array([True] * batch.num_rows)


def _address(text: str) -> tuple[Bucket, int]:
    bucket, colon, offset = text.rpartition(":")
    partition, _, number = bucket.rpartition("/")
    if not (colon and offset.isdecimal() and number.isdecimal()):
        raise InvalidRequest(what=f"--at {text}", reason="write it as BUCKET:OFFSET, or PARTITION/BUCKET:OFFSET")
    return Bucket(partition, int(number)), int(offset)


def _key(info: TableInfo, text: str) -> pa.Table:
    """One row. Raises `InvalidRequest`, `InvalidRows`."""
    from lakeward.client.jsonvalues import plan_converter
    from lakeward.client.rows import fit_rows
    from lakeward.model import to_arrow_field

    names = info.descriptor.primary_key
    if not names:
        raise InvalidRequest(what=f"trace of {info.path}", reason="it has no primary key; name the row by --at")
    parsed: Any = _json(text)
    if not isinstance(parsed, dict):
        if len(names) > 1:
            example = json.dumps(dict.fromkeys(names, "..."))
            raise InvalidRequest(what=f"--key {text}", reason=f"the key has several columns: --key '{example}'")
        parsed = {names[0]: parsed}
    values = {}
    for name in names:
        kind = to_arrow_field(info.schema.column(name)).type
        value = parsed.get(name)
        try:
            values[name] = plan_converter(kind)(value)
        except (ValueError, TypeError):
            values[name] = value if isinstance(value, str) else text
    return fit_rows([values], info, names)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rounds(client: Client, table: str) -> dict[str, Mapping[str, Any]]:
    params = {"table": table, "limit": MOST_ROUNDS}
    return {r["round_id"]: r for r in client.server.ask("GET", routes.ROUNDS, params=params)["rounds"]}


def _writer(client: Client, table: str, bucket: Bucket, offset: int) -> dict[str, Any]:
    params = {"bucket": bucket.number, "partition": bucket.partition, "offset": offset}
    answer: dict[str, Any] = client.server.ask("GET", routes.WRITER.format(table=table), params=params)
    return answer


def _lines(
    title: str, traced: RowTrace, rounds: Mapping[str, Mapping[str, Any]], writers: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    yield title
    if not traced.changes:
        yield f"  no change of it is in the log, which begins at offset {traced.log_start:,}"
    for change, by in zip(traced.changes, writers, strict=True):
        number = by["writer"]
        writer = "a writer without an id" if number is None else f"writer {number}, its batch {by['batch']:,}"
        yield f"  offset {change.offset:,}: {change.kind.word.replace('_', ' ')} by {writer}"
        yield f"    durable {_at(change.at_ms)}"
        yield from (f"    {line}" for line in _steps(change, rounds))
    if traced.changes and traced.log_start:
        yield f"  the log begins at offset {traced.log_start:,}: older changes are not known"
    yield from (f"  note: {note}" for note in traced.notes)


def _steps(change: TracedChange, rounds: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    entry = change.entry
    if entry is None:
        yield "waits for its round"
        return
    yield f"round {entry.round_id} of job {entry.job}, snapshot {entry.snapshot_id}"
    took = duration(entry.committed_at_ms - change.at_ms)
    yield f"in the lake {_at(entry.committed_at_ms)}, {took} after it was durable"
    if (done := rounds.get(str(entry.round_id))) is not None:
        yield f"  {_phases(done, change.at_ms)}"
    for number, place in enumerate(change.places):
        where = place.file if place.position is None else f"{place.file}, row {place.position:,}"
        by = "moved by another engine" if place.rewrite_id is None else f"moved by compaction {place.rewrite_id}"
        verb = f"first shown by snapshot {place.snapshot_id}" if not number else f"{by}, snapshot {place.snapshot_id}"
        yield f"{verb} {_at(place.since_ms)}"
        yield f"  {where}"
    if change.removal is not None:
        removal = change.removal
        yield f"no longer shown since snapshot {removal.snapshot_id} {_at(removal.at_ms)}"
        yield f"  {'taken out by ' + removal.file if removal.file else 'its file was written again without it'}"


def _phases(done: Mapping[str, Any], at_ms: int) -> str:
    phases = done["phases"]
    waited = f"waited {duration(max(0, done['started_at_ms'] - at_ms))} for the round"
    steps = (f"{name} {duration(1000 * phases[f'{name}_s'])}" for name in ("plan", "write", "resolve", "commit"))
    return ", ".join((waited, *steps))


def _at(ms: int) -> str:
    return f"{moment(ms)}.{ms % 1000:03} UTC"
