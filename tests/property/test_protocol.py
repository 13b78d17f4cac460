# SPDX-License-Identifier: Apache-2.0
"""Every message of the protocol survives JSON; unknown fields are skipped, missing ones take their default or are
named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeward.protocol
from lakeward.errors import IncompatibleVersion, InvalidInput, InvalidRequest
from lakeward.model import (
    Bucket,
    Content,
    Epoch,
    Id,
    InstanceId,
    Intent,
    JobName,
    LedgerEntry,
    OffsetMap,
    OffsetRange,
    RoundPhases,
    RoundResult,
    SideName,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
)
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.heartbeat import (
    MOST_SLOTS,
    CommitReport,
    HeartbeatRequest,
    LeaseCheck,
    LeasedCommit,
    TableInWork,
)
from lakeward.protocol.operate import MOST_SQL_ROWS, SqlQuery
from lakeward.protocol.routes import PROTOCOL_MAJOR, check_peer
from tests.property.strategies import BUCKETS, OFFSET_MAPS, PATHS, RANGES, TABLES, TEXT, descriptors

NOT_SENT = {"Token", "TokenSet", "WriteToken"}
"""Classes of the package that travel as text or not at all."""


FEW = settings(max_examples=settings().max_examples // 20)
"""There are many messages, built by one codec: few examples of each are many of the codec."""


def messages() -> list[type]:
    """Every public dataclass of the protocol package, and those of the model that are sent as they are."""
    found: list[type] = [Intent, LedgerEntry, RoundPhases, RoundResult]
    for info in pkgutil.iter_modules(lakeward.protocol.__path__, "lakeward.protocol."):
        module = importlib.import_module(info.name)
        found += [
            c
            for c in vars(module).values()
            if dataclasses.is_dataclass(c) and isinstance(c, type) and c.__module__ == info.name
        ]
    sent = (c for c in found if c.__name__ not in NOT_SENT and not c.__name__.startswith("_"))
    return sorted(sent, key=lambda c: c.__name__)


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**53), 2**53),
    float: st.floats(-1e18, 1e18),
    bool: st.booleans(),
    Any: st.none() | st.integers() | TEXT,
    Bucket: BUCKETS,
    TablePath: PATHS,
    OffsetMap: OFFSET_MAPS,
    OffsetRange: RANGES,
    TableInfo: TABLES,
    TableDescriptor: descriptors(),
    SideName: st.builds(SideName, st.text("abz-_09", min_size=1), st.sampled_from(Content)),
}


BOUNDED: dict[tuple[type, str], st.SearchStrategy[int | None]] = {
    (HeartbeatRequest, "slots"): st.integers(0, MOST_SLOTS),
    (HeartbeatRequest, "room"): st.integers(0, MOST_SLOTS),
    (HeartbeatRequest, "memory_bytes"): st.none() | st.integers(0, (1 << 50) - 1),
    (SqlQuery, "rows"): st.integers(1, MOST_SQL_ROWS),
}
"""Fields whose message takes less than their type does."""


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Random values of a field's type."""
    kind = getattr(kind, "__supertype__", kind)
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if a is type(None) else values_of(a) for a in arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and issubclass(kind, Id):
        return st.text("abc019", min_size=1, max_size=8).map(kind)
    assert dataclasses.is_dataclass(kind), f"no values of {kind} are known"
    return message(typing.cast(type, kind))


def leased_commit(check: LeaseCheck, report: CommitReport) -> LeasedCommit:
    """The report of the round whose lease is checked: a message with two rounds is refused."""
    shared = {name: getattr(check, name) for name in ("job", "instance", "table_id", "epoch", "round_id", "side")}
    return LeasedCommit(check=check, report=dataclasses.replace(report, **shared))


def message(kind: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    fields = [f.name for f in dataclasses.fields(kind)]
    if kind is LeasedCommit:
        return st.builds(leased_commit, message(LeaseCheck), message(CommitReport))
    return st.builds(kind, **{n: BOUNDED[kind, n] if (kind, n) in BOUNDED else values_of(hints[n]) for n in fields})


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(encode(value)))


@pytest.mark.parametrize("kind", messages(), ids=lambda c: c.__name__)
class TestEveryMessage:
    @FEW
    @given(data=st.data())
    def test_survives_json(self, kind: type, data: st.DataObject) -> None:
        sent = data.draw(message(kind))
        assert decode(kind, through_json(sent)) == sent

    @FEW
    @given(data=st.data())
    def test_unknown_fields_of_a_newer_peer_are_skipped(self, kind: type, data: st.DataObject) -> None:
        sent = data.draw(message(kind))
        assert decode(kind, {**through_json(sent), "new-in-a-later-version": {"a": [1]}}) == sent

    @FEW
    @given(data=st.data())
    def test_missing_fields_take_their_default_or_are_named(self, kind: type, data: st.DataObject) -> None:
        body = through_json(data.draw(message(kind)))
        for field in dataclasses.fields(kind):
            rest = {k: v for k, v in body.items() if k not in (field.name, field.metadata.get("was"))}
            if field.default is not dataclasses.MISSING:
                assert getattr(decode(kind, rest), field.name) == field.default
            elif field.default_factory is not dataclasses.MISSING:
                assert getattr(decode(kind, rest), field.name) == field.default_factory()
            else:
                with pytest.raises(InvalidRequest, match=field.name):
                    decode(kind, rest)

    @FEW
    @given(data=st.data())
    def test_a_field_of_any_other_type_fits_or_is_refused_in_words(self, kind: type, data: st.DataObject) -> None:
        body = through_json(data.draw(message(kind)))
        name = data.draw(st.sampled_from([f.name for f in dataclasses.fields(kind)]))
        wrong: Any = data.draw(st.sampled_from([[[]], {"x": []}, "¿", -1.5, True, None, [1], {"version": 1}]))
        with contextlib.suppress(InvalidInput):
            decode(kind, {**body, name: wrong})


@given(st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT))
def test_what_is_no_object_is_no_message(body: Any) -> None:
    for kind in messages():
        with pytest.raises(InvalidRequest):
            decode(kind, body)


def test_a_wrong_field_is_named() -> None:
    body = through_json(
        HeartbeatRequest(
            job=JobName("j"), instance=InstanceId("i"), tiering=(TableInWork(table_id=TableId("t"), epoch=Epoch(1)),)
        )
    )
    body["tiering"][0]["epoch"] = "one"
    with pytest.raises(InvalidRequest) as raised:
        decode(HeartbeatRequest, body)
    assert str(raised.value) == "HeartbeatRequest.tiering[0].epoch: expected int, got str"
    body["tiering"][0]["epoch"] = True
    with pytest.raises(InvalidRequest, match="expected int, got bool"):
        decode(HeartbeatRequest, body)
    with pytest.raises(InvalidRequest, match=r"HeartbeatRequest\.leaving"):
        decode(
            HeartbeatRequest,
            {**through_json(HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"))), "leaving": 1},
        )


@pytest.mark.parametrize(
    ("theirs", "ours", "talk"),
    [
        ("1.4", "1.5", True),
        ("1.5", "1.5", True),
        ("1.9", "1.5", True),
        ("1.3", "1.5", False),
        ("2.5", "1.5", False),
        ("0.5", "1.5", False),
        (None, "1.5", True),
    ],
)
def test_a_peer_one_minor_version_older_works(theirs: str | None, ours: str, talk: bool) -> None:
    if talk:
        check_peer("a job", theirs, ours=ours)
        return
    with pytest.raises(IncompatibleVersion) as raised:
        check_peer("a job", theirs, ours=ours)
    assert str(theirs) in str(raised.value)
    assert ours in str(raised.value)
    assert "a job" in str(raised.value)


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "one.two", "1.2.3", "-1.0", f"{PROTOCOL_MAJOR}.²"])
def test_a_version_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_peer("a job", text)
