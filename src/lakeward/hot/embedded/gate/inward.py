# SPDX-License-Identifier: Apache-2.0
"""What a client sends, frame by frame: decides what of it reaches the Flight server. Pure: bytes in, bytes out.

Frames pass as they came, but for two kinds. Headers are written anew, without references to earlier ones and with the
peer's address: so those of a refused call can be left out. A DATA frame with several messages that is not here whole
passes in pieces, each a frame of its own: a message's length is known before the first byte of it has gone on, and no
frame is ever left half passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakeward.errors import InvalidRequest, LakewardError, QuotaExceeded
from lakeward.hot.embedded.gate.callcount import CallCount
from lakeward.hot.embedded.gate.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    HEAD,
    HEADERS,
    PADDED,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Misbehaved,
    credit,
    frame,
    frame_head,
    read_head,
    read_length,
    reset,
)
from lakeward.hot.embedded.gate.headerblock import HeaderReader, write_fields
from lakeward.hot.embedded.gate.putscan import Oversized, PutScan
from lakeward.hot.embedded.gate.refusal import refuse
from lakeward.hot.embedded.gate.rules import PEER, Call, Rules, refuse_message

_PREFIX = 5
"""Bytes before a gRPC message: whether it is compressed, and its length."""
_LONGEST_BLOCK = 32 * 1024
"""Bytes of a header block: twice what its fields may come to."""
_LONGEST_CONTROL = 16 * 1024
"""Bytes of a frame that is neither data nor headers. Clients send a few dozen."""
_MOST_CONTINUED = 8
"""Frames that a header block may be spread over."""
_MOST_EARLY = 50
"""Frames before the first call that is let in: gRPC's clients send two or three."""
_MOST_REFUSED = 100
"""Refused calls of a connection."""
_MOST_DROPPED = 64 << 20
"""Bytes of refused calls on a connection. A client that is told stops; by then it may have sent what its window holds,
some ten megabytes."""
_MOST_STREAMS = 1000
"""Calls under way on a connection: more than a token may have."""


@dataclass(slots=True)
class Stream:
    """A call under way. `left` are the bytes of its message that are to come, `scan` looks at them while there is
    something to see.
    """

    stream_id: int
    call: Call
    active_at: float
    prefix: bytes = b""
    left: int = 0
    messages: int = 0
    is_ended: bool = False
    scan: PutScan | None = None
    fault: LakewardError | None = None


class Inward:
    """`take` puts what goes on into `out` and what the client is told into `back`; `refusals` are for the log."""

    def __init__(
        self, rules: Rules, peer: str, clock: Callable[[], float] = time.monotonic, calls: CallCount | None = None
    ) -> None:
        """`calls` counts those of all connections."""
        self._rules, self._peer, self._clock = rules, peer.encode(), clock
        self._calls, self._host = calls or CallCount(clock=clock), peer.rpartition(":")[0]
        self.out: list[bytes | memoryview] = []
        self.back: list[bytes] = []
        self.refusals: list[tuple[str, LakewardError]] = []
        self.streams: dict[int, Stream] = {}
        self.is_greeted = self.is_admitted = False
        self.last_id, self.run = 0, 0
        self._headers = HeaderReader()
        self._block: tuple[int, int, int, bytearray] | None = None
        self._rest: tuple[Stream, int, int] | None = None
        self._drop = self._dropped = self._early = self._refused = self._credit = 0

    @property
    def is_inside(self) -> bool:
        """A frame, or a block of headers, is under way."""
        return bool(self.run or self._drop) or self._rest is not None or self._block is not None

    def skip(self, size: int) -> None:
        """`size` bytes of `run`, which go on whatever they are, were moved past this object."""
        self.run -= size

    def take(self, data: memoryview) -> int:
        """Returns how much of `data` was dealt with; the rest is to be given again, with more behind it. Raises
        `Misbehaved`.
        """
        at = start = 0
        end = len(data)
        if not self.is_greeted:
            at = self._greet(data)
            if not self.is_greeted:
                return 0
        while True:
            if self.run:
                step = min(self.run, end - at)
                at, self.run = at + step, self.run - step
                if self.run:
                    break
            if self._drop:
                self._pass(data, start, at)
                at = start = at + self._drop_some(end - at)
                if self._drop:
                    break
            if self._rest is not None:
                stream, length, flags = self._rest
                self._pass(data, start, at)
                start = at
                if not self._pass_data(stream, length, flags, data, at, end):
                    break
                continue
            if end - at < HEAD:
                break
            length_and_kind, flags, stream_id = read_head(data, at)
            length, kind, stream_id = length_and_kind >> 8, length_and_kind & 0xFF, stream_id & 0x7FFFFFFF
            if self._block is not None and kind != CONTINUATION:
                raise Misbehaved(PROTOCOL_ERROR, "a header block is not whole")
            if kind == DATA:
                found = self._data_stream(stream_id, flags)
                if found is None:
                    self._pass(data, start, at)
                    at = start = at + HEAD
                    self._drop = length
                    continue
                if self._passes_whole(found, length, flags, data, at + HEAD, end):
                    at += HEAD
                    continue
                self._pass(data, start, at)
                start = at
                if not self._pass_data(found, length, flags, data, at + HEAD, end):
                    break
                at = start = at + HEAD
                continue
            limit = _LONGEST_BLOCK if kind in (HEADERS, CONTINUATION) else _LONGEST_CONTROL
            if length > limit:
                raise Misbehaved(FRAME_SIZE_ERROR, f"a frame of kind {kind} with {length} bytes")
            if end - at < HEAD + length:
                break
            if not self.is_admitted:
                self._count_early()
            if kind in (HEADERS, CONTINUATION):
                self._pass(data, start, at)
                self._take_headers(kind, flags, stream_id, bytes(data[at + HEAD : at + HEAD + length]))
                at = start = at + HEAD + length
            elif self._passes_control(kind, stream_id):
                at += HEAD + length
            else:
                self._pass(data, start, at)
                at = start = at + HEAD + length
        self._pass(data, start, at)
        self._give_credit()
        return at

    def end(self, stream: Stream, error: LakewardError) -> None:
        """Ends a call that is under way. Only when no `run` is left."""
        self._forget(stream.stream_id)
        self.out.append(reset(stream.stream_id, CANCEL))
        self.back.append(refuse(stream.stream_id, error))

    def finish(self, stream_id: int) -> None:
        """The server has ended the call."""
        self._forget(stream_id)

    def close(self) -> None:
        """The connection has ended, and with it the calls that are under way."""
        for stream_id in list(self.streams):
            self._take_back(stream_id)

    def _forget(self, stream_id: int) -> None:
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self._calls.end(stream.call.token_name)

    def _take_back(self, stream_id: int) -> None:
        self._forget(stream_id)
        self._calls.take_back(self._host)

    def _greet(self, data: memoryview) -> int:
        seen = min(len(data), len(PREFACE))
        if data[:seen] != PREFACE[:seen]:
            raise Misbehaved(PROTOCOL_ERROR, "this is no HTTP/2")
        self.is_greeted = seen == len(PREFACE)
        return seen

    def _pass(self, data: memoryview, start: int, stop: int) -> None:
        if start < stop:
            self.out.append(data[start:stop])

    def _drop_some(self, here: int) -> int:
        step = min(self._drop, here)
        self._drop -= step
        self._credit += step
        self._dropped += step
        if self._dropped > _MOST_DROPPED:
            raise Misbehaved(ENHANCE_YOUR_CALM, "too much was sent on calls that were refused")
        return step

    def _give_credit(self) -> None:
        if self._credit:
            self.back.append(credit(self._credit))
            self._credit = 0

    def _count_early(self) -> None:
        self._early += 1
        if self._early > _MOST_EARLY:
            raise Misbehaved(ENHANCE_YOUR_CALM, "many frames and no call")

    # ---- data ------------------------------------------------------------------------------------------------------
    def _data_stream(self, stream_id: int, flags: int) -> Stream | None:
        """None: its call was refused or is over; what was sent before the client heard of it is dropped."""
        if flags & PADDED:
            raise Misbehaved(PROTOCOL_ERROR, "padded data; gRPC has none")
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id == 0 or stream_id > self.last_id:
                raise Misbehaved(PROTOCOL_ERROR, f"data on stream {stream_id}, which was not opened")
            return None
        if stream.is_ended:
            raise Misbehaved(PROTOCOL_ERROR, f"data on stream {stream_id} behind its end")
        stream.active_at = self._clock()
        return stream

    def _passes_whole(self, stream: Stream, length: int, flags: int, data: memoryview, at: int, end: int) -> bool:
        """The usual frame: the rest of a message, or the whole or a part of one. It passes under its own head."""
        if stream.scan is not None or stream.fault is not None:
            return False
        if stream.left >= length:
            stream.left -= length
        elif not stream.left and not stream.prefix and length >= _PREFIX and end - at >= _PREFIX:
            (size,) = read_length(data, at + 1)
            if length - _PREFIX > size or refuse_message(stream.call, stream.messages + 1, data[at] != 0, size):
                return False
            if stream.call.max_unpacked is not None and not _is_fit(stream, size, data[at + _PREFIX : at + length]):
                return False
            stream.messages += 1
            stream.left = size - (length - _PREFIX)
        else:
            return False
        self.run = length
        stream.is_ended = bool(flags & END_STREAM)
        return True

    def _pass_data(self, stream: Stream, length: int, flags: int, data: memoryview, at: int, end: int) -> bool:
        """Passes as much of `length` bytes of data at `at` as can be decided on, as a frame; false when that is
        nothing yet.
        """
        size, error = self._decide(stream, length, data, at, end)
        if size == 0 and error is not None:
            self._rest, self._drop = None, length
            self.end(stream, error)
            self._count_refusal(stream.call.method, error)
            return True
        if size == 0:
            return False
        is_last = size == length
        self.out.append(frame_head(size, DATA, flags if is_last else flags & ~END_STREAM, stream.stream_id))
        self._rest = None if is_last else (stream, length - size, flags)
        self.run = size
        stream.is_ended = is_last and bool(flags & END_STREAM)
        return True

    def _decide(
        self, stream: Stream, length: int, data: memoryview, at: int, end: int
    ) -> tuple[int, LakewardError | None]:
        """(how many of `length` bytes may pass, why what follows them may not)."""
        done = 0
        while done < length and stream.fault is None:
            if stream.left:
                step = min(stream.left, length - done)
                if stream.scan is not None:
                    step = _scan(stream, stream.scan, data[at + done : min(end, at + done + step)])
                    if not step:
                        break
                stream.left -= step
                done += step
                continue
            wanted = min(_PREFIX - len(stream.prefix), length - done)
            if end - at - done < wanted:
                break
            prefix = stream.prefix + bytes(data[at + done : at + done + wanted])
            if len(prefix) == _PREFIX:
                size = int.from_bytes(prefix[1:], "big")
                error = refuse_message(stream.call, stream.messages + 1, prefix[0] != 0, size)
                if error is not None:
                    return done, error
                stream.messages, stream.left, prefix = stream.messages + 1, size, b""
                if stream.call.max_unpacked is not None:
                    stream.scan = PutScan(size, stream.call.max_unpacked)
            stream.prefix = prefix
            done += wanted
        return done, stream.fault

    # ---- headers and the rest --------------------------------------------------------------------------------------
    def _take_headers(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == HEADERS:
            self._block = (stream_id, flags & END_STREAM, 0, bytearray(_bare(payload, flags)))
        elif self._block is None or self._block[0] != stream_id:
            raise Misbehaved(PROTOCOL_ERROR, "the rest of a header block that did not begin")
        else:
            _, ended, count, block = self._block
            block += payload
            if count >= _MOST_CONTINUED or len(block) > _LONGEST_BLOCK:
                raise Misbehaved(ENHANCE_YOUR_CALM, "a header block in too many pieces")
            self._block = (stream_id, ended, count + 1, block)
        if flags & END_HEADERS:
            _, ended, _, block = self._block
            self._block = None
            self._open(stream_id, ended, bytes(block))

    def _open(self, stream_id: int, ended: int, block: bytes) -> None:
        if stream_id % 2 == 0 or stream_id <= self.last_id:
            raise Misbehaved(PROTOCOL_ERROR, f"stream {stream_id} cannot be opened")
        self.last_id = stream_id
        if len(self.streams) >= _MOST_STREAMS:
            raise Misbehaved(ENHANCE_YOUR_CALM, f"{_MOST_STREAMS} calls on one connection")
        if self._calls.is_hasty(self._host):
            raise Misbehaved(ENHANCE_YOUR_CALM, "many calls were taken back")
        fields = self._headers.read(block)
        try:
            call = self._rules.admit(fields)
            self._calls.begin(call.token_name)
        except LakewardError as error:
            self.back.append(refuse(stream_id, error))
            self._count_refusal(_method(fields), error)
            return
        self.is_admitted = True
        self.streams[stream_id] = Stream(stream_id, call, self._clock(), is_ended=bool(ended))
        passed = [(name, value) for name, value in fields if name != PEER]
        passed.append((PEER, self._peer))
        self.out.append(frame(HEADERS, ended | END_HEADERS, stream_id, write_fields(passed)))

    def _count_refusal(self, method: str, error: LakewardError) -> None:
        self._refused += not isinstance(error, QuotaExceeded)  # who has many calls under way keeps them
        if self._refused > _MOST_REFUSED:
            raise Misbehaved(ENHANCE_YOUR_CALM, f"{_MOST_REFUSED} calls were refused")
        self.refusals.append((method, error))

    def _passes_control(self, kind: int, stream_id: int) -> bool:
        if kind == PUSH_PROMISE:
            raise Misbehaved(PROTOCOL_ERROR, "a client promised a push")
        if kind > CONTINUATION:
            return False
        if kind in (RST_STREAM, WINDOW_UPDATE, PRIORITY) and stream_id and stream_id not in self.streams:
            return False
        if kind == RST_STREAM:
            self._take_back(stream_id)
        return True


def _is_fit(stream: Stream, size: int, here: memoryview) -> bool:
    """What is here of a message is enough to know that its batch is not too large."""
    assert stream.call.max_unpacked is not None
    scan = PutScan(size, stream.call.max_unpacked)
    try:
        scan.feed(here)
    except Oversized:
        return False
    return scan.is_done or len(here) == size


def _scan(stream: Stream, scan: PutScan, here: memoryview) -> int:
    """How many bytes may pass: those that were looked at. None when they show that the rest may not."""
    try:
        scan.feed(here)
    except Oversized as error:
        stream.fault = InvalidRequest(what=stream.call.method, reason=str(error))
        return 0
    if scan.is_done or len(here) == stream.left:
        stream.scan = None
    return len(here)


def _bare(payload: bytes, flags: int) -> bytes:
    """A header block without the padding and the priority that may be around it."""
    stop = len(payload)
    start = 0
    if flags & PADDED:
        if not payload:
            raise Misbehaved(PROTOCOL_ERROR, "padding without a length")
        start, stop = 1, stop - payload[0]
    if flags & WITH_PRIORITY:
        start += 5
    if start > stop:
        raise Misbehaved(PROTOCOL_ERROR, "headers shorter than their padding")
    return payload[start:stop]


def _method(fields: list[tuple[bytes, bytes]]) -> str:
    return next((v.decode(errors="replace") for n, v in fields if n == b":path"), "").rpartition("/")[2][:60]
