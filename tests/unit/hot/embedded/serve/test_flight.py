# SPDX-License-Identifier: Apache-2.0
"""The Flight server and its client over loopback, around a store of lists: errors, retries, limits, forks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.client.sender import Outgoing, PutSender
from lakeward.errors import (
    BucketStopped,
    DiskFull,
    InvalidRequest,
    LakewardError,
    OutOfSequence,
    Overloaded,
    RemoteError,
    ServerUnavailable,
    to_wire,
    tree,
)
from lakeward.hot.embedded.remote.connection import Backoff
from lakeward.hot.embedded.remote.failure import LONGEST_TEXT, from_flight
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.drain import CallDrain
from lakeward.hot.embedded.serve.putcheck import check_put_schema
from lakeward.model import Bucket
from lakeward.protocol.flight import (
    PutCommand,
    PutKind,
    Ticket,
    from_bytes,
    log_ticket,
    ticket_from_text,
    ticket_text,
    to_bytes,
)
from lakeward_testing.proxy import CuttingProxy
from tests.unit.hot.embedded.serve.standin import Served, serving

B0 = Bucket("", 0)


def test_every_error_comes_back_as_its_own_type() -> None:
    errors: list[LakewardError] = []
    for kind in tree():
        names = [n for n in kind.__annotations__ if n not in ("code", "retryable", "http_status", "template")]
        facts = {
            name: {"int": 7, "float": 7.5, "bool": True}.get(str(kind.__annotations__[name]), "x") for name in names
        }
        try:
            error = kind(**facts)
        except TypeError:
            continue  # inherits facts; its parents are in the tree too
        errors.append(error)
    left = iter(errors)

    def fail() -> None:
        raise next(left)

    with serving() as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as client:
        served.store.before_list = fail
        for error in errors:
            assert to_wire(refused(client)) == to_wire(error)


def refused(client: flight.FlightClient) -> LakewardError:
    with pytest.raises(flight.FlightError) as caught:
        list(client.do_action(flight.Action("list-tables", b"{}")))
    return from_flight(caught.value, "here")


def test_long_errors_fit_into_what_grpc_carries() -> None:
    def fail() -> None:
        raise InvalidRequest(what="w\n\u00fc" * 100_000, reason="r" * 100_000)

    with serving() as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as client:
        served.store.before_list = fail
        back = refused(client)
    assert isinstance(back, InvalidRequest)
    assert len(back.what) == len(back.reason) == LONGEST_TEXT


def test_an_error_that_is_not_ours_is_told_without_its_stack() -> None:
    with serving() as served:
        table = served.table()

        def fail(batch: pa.RecordBatch) -> None:
            raise ZeroDivisionError("secret detail")

        served.store.before_append = fail
        with pytest.raises(RemoteError) as told:
            table.append({"id": 1})
        assert "secret" not in json.dumps(to_wire(told.value))
        served.store.before_append = lambda batch: None
        table.append({"id": 2})
    assert [row["id"] for row in served.store.rows()] == [2]


def failing_once(error: LakewardError) -> Callable[[pa.RecordBatch], None]:
    left = [error]

    def fail(batch: pa.RecordBatch) -> None:
        if left:
            raise left.pop()

    return fail


@pytest.mark.parametrize(
    "error",
    [
        DiskFull(where="disk", free_bytes=0, reserve_bytes=1),
        Overloaded(what="put", in_use_bytes=1, limit_bytes=1),
        ServerUnavailable(address="here", reason="it is going down"),
    ],
)
def test_refusals_that_pass_are_tried_again(error: LakewardError) -> None:
    with serving() as served:
        table = served.table()
        served.store.before_append = failing_once(error)
        assert table.append([{"id": 1}, {"id": 2}]).offsets[B0] == 2
    assert [row["id"] for row in served.store.rows()] == [1, 2]


def test_refusals_that_stay_are_raised_and_the_next_write_goes_under_a_new_writer() -> None:
    with serving() as served:
        table = served.table()
        table.append({"id": 1})
        served.store.before_append = failing_once(BucketStopped(table="t", bucket="0", what="writes", reason="broken"))
        with pytest.raises(BucketStopped):
            table.append({"id": 2})
        table.append({"id": 3})
    assert [row["id"] for row in served.store.rows()] == [1, 3]
    assert len(served.store.writers) == 2


def test_a_refusal_in_the_middle_says_what_was_stored_before() -> None:
    with serving() as served:
        table = served.table()
        sender = table.new_sender(PutKind.APPEND, None)
        batch = pa.record_batch({"id": pa.array([1, 2]), "name": pa.array(["x", "y"])})

        def refuse_the_third(_: pa.RecordBatch) -> None:
            if served.store.puts == 2:
                raise InvalidRequest(what="partition 3", reason="there are 2, the most that are allowed")

        served.store.before_append = refuse_the_third
        with pytest.raises(InvalidRequest, match=r"are allowed; 4 rows of this append .* are stored, no others"):
            sender.send([(B0, batch)] * 4)
        sender.close()
    assert len(list(served.store.rows())) == 4


def test_a_lost_acknowledgement_does_not_store_twice() -> None:
    with serving() as served:
        proxy = CuttingProxy(("127.0.0.1", served.port))
        table = served.table(client=served.client(port=proxy.port))
        table.append({"id": 1})
        cut = iter([proxy.cut])
        store = served.store
        store.after_append = lambda: next(cut, lambda: None)()
        assert table.append({"id": 2}).offsets[B0] == 2
        proxy.close()
    assert store.puts == 3
    assert [age_ms > 0 for age_ms in store.ages_ms] == [False, False, True], "what is sent again says since when"
    assert [row["id"] for row in store.rows()] == [1, 2]


def test_a_writer_that_skips_a_number_is_refused() -> None:
    with serving() as served:
        table = served.table()
        sender = table.new_sender(PutKind.APPEND, None)
        sender._next[B0] = 5
        batch = pa.record_batch({"id": pa.array([1]), "name": pa.array(["x"])})
        with pytest.raises(OutOfSequence):
            sender.send([(B0, batch)])
        sender.send([(B0, batch)])
        sender.close()


def test_a_read_goes_on_where_it_broke() -> None:
    with serving() as served:
        writer = served.table()
        for n in range(50):
            writer.append([{"id": n, "name": "x" * 1_000_000}])
        proxy = CuttingProxy(("127.0.0.1", served.port))
        table = served.table(client=served.client(port=proxy.port))
        seen = []
        for turn, batch in enumerate(table.client.store.read_log(table.info, B0, 0, 50)):
            seen += batch.column("id").to_pylist()
            if turn in (1, 5):
                proxy.cut()
        assert proxy.cuts >= 1
        assert seen == list(range(50))
        proxy.close()


def test_nobody_there_is_said_after_the_time_to_retry() -> None:
    with serving() as served:
        proxy = CuttingProxy(("127.0.0.1", served.port))
        port = proxy.port
        proxy.close()
        table = served.table(client=served.client(port=port, retry_s=0.3))
        with pytest.raises(ServerUnavailable):
            table.append({"id": 1})
        with pytest.raises(ServerUnavailable):
            table.scan(0, 0, 1)


def test_memory_in_use_makes_others_wait_and_then_refuses() -> None:
    budget = MemoryBudget(total_bytes=100, request_bytes=60, patience_s=0.05)
    with pytest.raises(InvalidRequest, match="61 bytes, at most 60"), budget.hold(61, "put"):
        pass
    waiting = threading.Event()

    def take() -> None:
        patient = budget
        patient.patience_s = 30.0
        waiting.set()
        with patient.hold(60, "put"):
            pass

    with budget.hold(60, "put"):
        with pytest.raises(Overloaded) as refused, budget.hold(41, "put"):
            pass
        assert refused.value.in_use_bytes == 60
        with budget.hold(40, "put"):
            assert budget.in_use_bytes == 100
        other = threading.Thread(target=take)
        other.start()
        waiting.wait(120)
    other.join(120)
    assert not other.is_alive()
    assert budget.in_use_bytes == 0


def test_a_closed_gate_lets_nobody_in_and_waits_for_who_is_inside() -> None:
    gate = CallDrain("here", is_open=False)
    with pytest.raises(ServerUnavailable, match="starting"), gate.inside():
        pass
    gate.open()
    with gate.inside():
        assert not gate.drain(0.01)
        with pytest.raises(ServerUnavailable, match="going down"), gate.inside():
            pass
    assert gate.drain(0.0)


def test_tickets_survive_their_text_form() -> None:
    served = Served()
    ticket = log_ticket(served.table().info, Bucket("2024$eu", 3), 5, 9, ("id",))
    assert from_bytes(Ticket, ticket_from_text(ticket_text(ticket))) == ticket
    for garbage in (b"", b"\xff", b"[]", b"{}", b'{"kind":"log"}'):
        with pytest.raises(InvalidRequest):
            from_bytes(Ticket, garbage)
    served.close()


def test_a_put_has_the_columns_of_the_schema_that_it_names() -> None:
    served = Served()
    table = served.table().info
    served.close()

    def command(kind: PutKind = PutKind.APPEND) -> PutCommand:
        return from_bytes(
            PutCommand, to_bytes(PutCommand(table=table.path, table_id=table.table_id, kind=kind, schema_id=1))
        )

    good = pa.schema([("id", pa.int64()), ("name", pa.string())])
    check_put_schema(table, command(), good)
    for kind, schema in (
        (PutKind.UPSERT, good),
        (PutKind.DELETE, good),
        (PutKind.APPEND, pa.schema([("name", pa.string()), ("id", pa.int64())])),
        (PutKind.APPEND, pa.schema([("id", pa.int64()), ("name", pa.large_string())])),
        (PutKind.APPEND, pa.schema([("id", pa.int64())])),
    ):
        with pytest.raises(InvalidRequest):
            check_put_schema(table, command(kind), schema)


def test_a_task_that_runs_again_with_its_own_numbers_stores_nothing_twice() -> None:
    with serving() as served:
        table = served.table()
        batch = pa.record_batch({"id": pa.array([1]), "name": pa.array(["x"])})
        for _ in range(2):
            sender = PutSender(table.client.store.connection, table.info, PutKind.APPEND, writer=77)
            acks: list[int] = []
            items = iter([Outgoing(B0, batch, lambda ack, acks=acks: acks.append(ack.stop), n) for n in range(3)])  # type: ignore[misc]
            sender.drive(lambda items=items: next(items, None))  # type: ignore[misc]
            sender.close()
            assert acks == [1, 2, 3]
    assert len(served.store.rows()) == 3


def test_who_waits_for_a_server_is_told_why_once(caplog: pytest.LogCaptureFixture) -> None:
    error = ServerUnavailable(address="http://here", what="a read of d.t", reason="refused")
    Backoff(60.0, first_s=0.0).pause(error)
    assert not caplog.records, "a break of a moment is nobody's business"
    backoff = Backoff(60.0, first_s=0.0, silence_s=0.0)
    for _ in range(3):
        backoff.pause(error)
    (told,) = caplog.records
    assert told.getMessage().startswith(str(error))
    backoff.progress()
    backoff.pause(error)
    assert len(caplog.records) == 2
