# SPDX-License-Identifier: Apache-2.0
"""The connection over a real socket: answers in any order, errors, silence, reconnect, login."""

from __future__ import annotations

import threading

import pytest

from lakeward.errors import FlussError, IncompatibleVersion, ServerUnavailable, Unauthorized
from lakeward.hot.fluss.failures import fluss_code_of
from lakeward.hot.fluss.wire.connection import Credentials, FlussConnection
from lakeward.hot.fluss.wire.messages import AUTHENTICATE, HEARTBEAT, LIST_TABLES
from tests.unit.hot.fluss.scripted_server import Call, scripted


def connect(port: int, **options: object) -> FlussConnection:
    return FlussConnection("127.0.0.1", port, timeout_s=5.0, **options)  # type: ignore[arg-type]


def test_answers_in_any_order_reach_their_calls() -> None:
    waiting: list[Call] = []

    def answer(call: Call) -> None:
        waiting.append(call)
        if len(waiting) == 3:
            for late in reversed(waiting):
                late.done(LIST_TABLES, {"names": [late.body[2:].decode()]})

    with scripted(answer) as server:
        connection = connect(server.port)
        calls = [connection.send(LIST_TABLES, {"database": name}) for name in ("a", "b", "c")]
        assert [c.result()["names"] for c in calls] == [["a"], ["b"], ["c"]]
        assert server.connections == 1
        connection.close()


def test_threads_share_one_connection() -> None:
    with scripted(lambda call: call.done(LIST_TABLES, {"names": [call.body[2:].decode()]})) as server:
        connection, found = connect(server.port), {}

        def ask(name: str) -> None:
            found[name] = connection.call(LIST_TABLES, {"database": name})["names"]

        threads = [threading.Thread(target=ask, args=(f"t{n}",)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert found == {f"t{n}": [f"t{n}"] for n in range(20)}
        assert server.connections == 1
        connection.close()


@pytest.mark.parametrize(
    "words",
    [
        "java.lang.IllegalStateException: CoordinatorEventProcessor is not initialized yet.",
        "org.apache.fluss.exception.UnknownServerException: Failed to get table path by ID 1",
    ],
)
def test_a_coordinator_that_has_just_started_is_asked_again_later(words: str) -> None:
    with scripted(lambda call: call.fail(-1, words)) as server:
        connection = connect(server.port)
        with pytest.raises(ServerUnavailable, match="error -1"):
            connection.call(LIST_TABLES, {"database": "a"})
        connection.close()


def test_an_error_answer_is_typed_and_keeps_its_number() -> None:
    with scripted(lambda call: call.fail(7, "no such table\nat org.apache")) as server:
        connection = connect(server.port)
        with pytest.raises(FlussError, match="no such table") as failed:
            connection.call(LIST_TABLES, {"database": "a"})
        assert (failed.value.fluss_code, fluss_code_of(failed.value)) == (7, 7)
        assert "org.apache" not in str(failed.value)
        connection.close()


@pytest.mark.parametrize("code", [12, 25, 44, 65])
def test_a_server_that_says_later_is_unavailable(code: int) -> None:
    with scripted(lambda call: call.fail(code)) as server:
        connection = connect(server.port)
        with pytest.raises(ServerUnavailable):
            connection.call(HEARTBEAT, {})
        connection.close()


def test_silence_ends_with_the_time_limit_and_the_connection_goes_on() -> None:
    def answer(call: Call) -> None:
        if call.key == LIST_TABLES.key:
            call.done(LIST_TABLES, {"names": ["there"]})

    with scripted(answer) as server:
        connection = connect(server.port)
        with pytest.raises(ServerUnavailable, match="did not answer"):
            connection.call(HEARTBEAT, {}, timeout_s=0.1)
        assert connection.call(LIST_TABLES, {"database": "a"})["names"] == ["there"]
        assert server.connections == 1
        connection.close()


def test_a_call_that_the_server_does_not_list_is_not_sent() -> None:
    with scripted(lambda call: None, keys=(1000, 1008)) as server:
        connection = connect(server.port)
        with pytest.raises(IncompatibleVersion, match="LakeTieringHeartbeat"):
            connection.call(HEARTBEAT, {})
        assert server.calls == []
        connection.close()


def test_a_call_in_other_versions_only_is_not_sent() -> None:
    """This client speaks version 0 of every call."""
    with scripted(lambda call: None, keys=(1000, 1042), lowest=1) as server:
        connection = connect(server.port)
        with pytest.raises(IncompatibleVersion, match="versions 1 to 1"):
            connection.call(HEARTBEAT, {})
        assert server.calls == []
        connection.close()


@pytest.mark.parametrize("frame", [b"\1\0\0\0", b"\1\0\0\0\2\xff\xff", b"\2\x12\x02\xff\xff"])
def test_after_a_frame_that_is_none_the_next_call_goes_through(frame: bytes) -> None:
    """Too short for its kind; an error that is no message; text that is no text. No call waits for its time limit."""

    def answer(call: Call) -> None:
        if len(server.calls) == 1:
            call.sock.sendall(len(frame).to_bytes(4, "big") + frame)
        else:
            call.done(LIST_TABLES, {"names": ["back"]})

    with scripted(answer) as server:
        connection = connect(server.port)
        with pytest.raises((ServerUnavailable, FlussError)) as failed:
            connection.call(LIST_TABLES, {"database": "a"})
        assert "did not answer" not in str(failed.value)
        assert connection.call(LIST_TABLES, {"database": "a"})["names"] == ["back"]
        connection.close()


def test_an_answer_whose_text_is_none_is_an_error_with_a_type() -> None:
    with scripted(lambda call: call.send(0, b"\x0a\x02\xff\xff")) as server:
        connection = connect(server.port)
        with pytest.raises(FlussError, match="ListTables"):
            connection.call(LIST_TABLES, {"database": "a"})
        connection.close()


def test_a_broken_connection_fails_what_waits_and_is_made_again() -> None:
    def answer(call: Call) -> None:
        if len(server.calls) == 1:
            call.hang_up()
        else:
            call.done(LIST_TABLES, {"names": ["back"]})

    with scripted(answer) as server:
        connection = connect(server.port)
        with pytest.raises(ServerUnavailable):
            connection.call(LIST_TABLES, {"database": "a"})
        assert connection.call(LIST_TABLES, {"database": "a"})["names"] == ["back"]
        assert server.connections == 2
        connection.close()


def test_login_comes_before_the_first_call() -> None:
    def answer(call: Call) -> None:
        if call.key == AUTHENTICATE.key:
            call.done(AUTHENTICATE, {"challenge": b""})
        else:
            call.done(LIST_TABLES, {"names": []})

    with scripted(answer) as server:
        connection = connect(server.port, credentials=Credentials(user="ann", password="pw"))
        connection.call(LIST_TABLES, {"database": "a"})
        assert [c.key for c in server.calls] == [AUTHENTICATE.key, LIST_TABLES.key]
        assert server.calls[0].body == b"\x0a\x05PLAIN\x12\x07\0ann\0pw"
        connection.close()


def test_a_refused_login_is_said() -> None:
    with scripted(lambda call: call.fail(46, "wrong password")) as server:
        connection = connect(server.port, credentials=Credentials(user="ann", password="no"))
        with pytest.raises(Unauthorized, match="wrong password"):
            connection.call(LIST_TABLES, {"database": "a"})
        connection.close()


def test_nobody_listens() -> None:
    with scripted(lambda call: None) as server:
        port = server.port
    with pytest.raises(ServerUnavailable):
        connect(port).call(HEARTBEAT, {})
    assert "pw" not in repr(Credentials(user="ann", password="pw"))
