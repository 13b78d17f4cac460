# SPDX-License-Identifier: Apache-2.0
"""Messages as JSON and back, driven by the dataclass fields: one place for all of them.

Unknown fields are skipped (a newer peer may send more), missing ones take their default, and a missing field without a
default is an `InvalidRequest` that names it.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Self

from lakeward.errors import IncompatibleVersion, InvalidInput, InvalidRequest, LakewardError, from_wire, to_wire
from lakeward.model import (
    Bucket,
    Id,
    LogSplit,
    OffsetMap,
    OffsetRange,
    OwnBytes,
    SideName,
    SnapshotSplit,
    Split,
    TableDescriptor,
    TableInfo,
    TablePath,
    pack,
    split_from_json,
    unpack,
)

T = typing.TypeVar("T")

_TEXT = (Bucket, SideName, TablePath)
_OWN_JSON = (OffsetMap, TableInfo, TableDescriptor)

_MOST = 2**63
_DEEPEST = 64
"""Levels of JSON: a nested type of a dozen levels has some thirty."""

_MOST_VALUES = 500_000
"""Each takes some fifty bytes or more of memory, and three of them on the wire will do."""


Where = Any
"""Which field a value is of: a text, or a pair of what it is inside and its own part; spelled where an error names it.
"""

Decoder = Callable[[Any, Where, Sequence[bytes]], Any]


# ---- to JSON ---------------------------------------------------------------------------------------------------------
def encode(value: Any) -> Any:
    """Plain JSON values of a message; bytes stay bytes."""
    kind: type = type(value)
    return _encoder(kind)(value)


def encode_fields(message: Any) -> dict[str, Any]:
    """A dataclass by its fields, whatever else it could be."""
    kind: type = type(message)
    return {name: encode(getattr(message, attribute)) for attribute, name in _sent(kind)}


@cache
def _encoder(kind: type) -> Callable[[Any], Any]:
    """Found once for each type: messages are many, and of few types."""
    if issubclass(kind, _TEXT):
        return str
    if issubclass(kind, (*_OWN_JSON, LogSplit, SnapshotSplit)):
        return lambda value: value.to_json()
    if issubclass(kind, OwnBytes):
        return lambda value: value.to_bytes()
    if issubclass(kind, LakewardError):
        return to_wire
    if issubclass(kind, OffsetRange):
        return lambda value: [value.start, value.stop]
    if issubclass(kind, Enum):
        return lambda value: value.value
    if dataclasses.is_dataclass(kind):
        return encode_fields
    if hasattr(kind, "model_dump_json"):  # of another library's models, which say themselves what they are in JSON
        return lambda value: value.model_dump_json()
    if issubclass(kind, Mapping):
        return lambda value: {str(k): encode(v) for k, v in value.items()}
    if issubclass(kind, list | tuple | set | frozenset):
        return lambda value: [encode(v) for v in value]
    return lambda value: value


@cache
def _sent(kind: type) -> tuple[tuple[str, str], ...]:
    """(attribute, name in JSON)"""
    return tuple((f.name, name) for f in dataclasses.fields(kind) for name in _names(f))


# ---- and back --------------------------------------------------------------------------------------------------------
def decode(kind: type[T], body: Any, blobs: Sequence[bytes] = ()) -> T:
    """The message again; a field of bytes has the number of one of `blobs`. Raises `InvalidRequest` naming the field
    that does not fit.
    """
    read = _top_decoder(typing.cast(Any, kind))
    try:
        return typing.cast(T, read(body, kind.__name__, blobs))
    except InvalidInput:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise InvalidRequest(what=kind.__name__, reason=f"{type(error).__name__}: {error}") from error


@cache
def _top_decoder(kind: Any) -> Decoder:
    """A message that has its own bytes inside others is read by its fields where it is the whole."""
    return _dataclass_decoder(kind) if issubclass(kind, OwnBytes) else _decoder(kind)


@cache
def _decoder(kind: Any) -> Decoder:
    """How a value of this type is read; found once for each."""
    kind = getattr(kind, "__supertype__", kind)
    if kind is float:
        return lambda body, where, blobs: _finite(_expect((int, float), body, where), where)
    if kind is int:
        return lambda body, where, blobs: _bounded(_expect(int, body, where), where)
    if kind is bytes:
        return lambda body, where, blobs: blobs[_expect(int, body, where)]
    if kind is Any:
        return lambda body, where, blobs: body
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(kind)
    if origin is tuple or origin is list:
        return _sequence_decoder(kind, origin)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _mapping_decoder(kind)
    if kind in _TEXT:
        return lambda body, where, blobs: kind.parse(_expect(str, body, where))
    if kind in _OWN_JSON:
        return lambda body, where, blobs: kind.from_json(_expect(dict, body, where))
    if kind is OffsetRange:
        return lambda body, where, blobs: OffsetRange(*_pair(_expect(list, body, where)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda body, where, blobs: kind(body)
    if isinstance(kind, type) and issubclass(kind, Id):
        return lambda body, where, blobs: kind(_expect(str, body, where))
    if issubclass(kind, OwnBytes):
        return lambda body, where, blobs: kind.from_bytes(blobs[_expect(int, body, where)])
    if issubclass(kind, LakewardError):
        return lambda body, where, blobs: from_wire(_expect(dict, body, where))
    if dataclasses.is_dataclass(kind):
        return _dataclass_decoder(typing.cast(type, kind))
    if hasattr(kind, "model_validate_json"):
        return lambda body, where, blobs: kind.model_validate_json(_expect(str, body, where))
    return lambda body, where, blobs: _expect(kind, body, where)


def _pair(body: list[Any]) -> tuple[Any, Any]:
    start, stop = body
    return start, stop


def _union_decoder(kind: Any) -> Decoder:
    if kind == Split:
        return lambda body, where, blobs: split_from_json(_expect(dict, body, where))
    arms = [a for a in typing.get_args(kind) if a is not type(None)]
    may_be_null = len(arms) < len(typing.get_args(kind))
    read = _decoder(arms[0]) if len(arms) == 1 else None

    def decode_union(body: Any, where: Where, blobs: Sequence[bytes]) -> Any:
        if body is None:
            if may_be_null:
                return None
            raise InvalidRequest(what=_spelled(where), reason="null is not allowed")
        if read is None:
            raise InvalidRequest(what=_spelled(where), reason="a message field has one type, or one type and null")
        return read(body, where, blobs)

    return decode_union


def _sequence_decoder(kind: Any, origin: Any) -> Decoder:
    read = _decoder(typing.get_args(kind)[0])
    return lambda body, where, blobs: origin(
        [read(v, (where, f"[{i}]"), blobs) for i, v in enumerate(_expect(list, body, where))]
    )


def _mapping_decoder(kind: Any) -> Decoder:
    key, value = typing.get_args(kind)
    read = _decoder(value)
    return lambda body, where, blobs: {
        _decode_key(key, k): read(v, (where, f".{k}"), blobs) for k, v in _expect(dict, body, where).items()
    }


def _decode_key(kind: Any, key: str) -> Any:
    kind = getattr(kind, "__supertype__", kind)
    if kind in _TEXT:
        return kind.parse(key)
    if isinstance(kind, type) and issubclass(kind, Id):
        return kind(key)
    return int(key) if kind is int else key


@cache
def _dataclass_decoder(kind: type) -> Decoder:
    def decode_dataclass(body: Any, where: Where, blobs: Sequence[bytes]) -> Any:
        values, fields = _expect(dict, body, where), {}
        for attribute, names, read, is_needed in _read(kind):
            for name in names:
                if name in values:
                    fields[attribute] = read(values[name], (where, "." + name), blobs)
                    break
            else:
                if is_needed:
                    raise InvalidRequest(what=f"{_spelled(where)}.{attribute}", reason="the field is missing")
        return kind(**fields)

    return decode_dataclass


@cache
def _read(kind: type) -> tuple[tuple[str, tuple[str, ...], Decoder, bool], ...]:
    """(attribute, names in JSON, how it is read, whether it must be there) of each field. Found when a message of the
    type is first read, as a type may be inside itself."""
    hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
    return tuple(
        (f.name, _names(f), _decoder(hints[f.name]), f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(kind)
    )


def _names(f: dataclasses.Field[Any]) -> tuple[str, ...]:
    """As the field is called, and as older peers call it (`metadata={"was": ...}`): both are sent, either is read."""
    was = f.metadata.get("was")
    return (f.name,) if was is None else (f.name, was)


def _spelled(where: Where) -> str:
    return where if isinstance(where, str) else _spelled(where[0]) + str(where[1])


def _expect(kind: Any, body: Any, where: Where) -> Any:
    if not isinstance(body, kind) or (isinstance(body, bool) and kind is not bool):
        wanted = getattr(kind, "__name__", "number")
        raise InvalidRequest(what=_spelled(where), reason=f"expected {wanted}, got {type(body).__name__}")
    return body


def _finite(number: float, where: Where) -> float:
    if not -_MOST < number < _MOST:
        raise InvalidRequest(what=_spelled(where), reason="a finite number of some size is expected")
    return float(number)


def _bounded(number: int, where: Where) -> int:
    if not -_MOST <= number < _MOST:
        raise InvalidRequest(what=_spelled(where), reason="an integer of 64 bits is expected")
    return number


def load_json(raw: bytes | str, what: str) -> Any:
    """Parses a message from a peer. Raises `InvalidRequest`, also for NaN, for integers of thousands of digits, and for
    more nesting or values than any message has."""
    text = raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw
    opened = text.count(b"{") + text.count(b"[")
    if opened + text.count(b",") > _MOST_VALUES:
        raise InvalidRequest(what=what, reason=f"more than {_MOST_VALUES} values")
    try:
        body = _of_text(text.decode(json.detect_encoding(text), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(what=what, reason=f"no JSON: {str(error)[:200]}") from error
    if opened > _DEEPEST:
        _check_depth(body, what)
    return body


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


_of_text = json.JSONDecoder(parse_constant=_no_number).decode
"""Made once: `json.loads` makes one for each call that asks for this."""


def _check_depth(body: Any, what: str) -> None:
    level = [body]
    for _ in range(_DEEPEST):
        level = [v for b in level if isinstance(b, dict | list) for v in (b.values() if isinstance(b, dict) else b)]
        if not level:
            return
    raise InvalidRequest(what=what, reason=f"nested more than {_DEEPEST} levels deep")


class Packed(OwnBytes):
    """`packed_as`: kind and version of the bytes. Fields may hold bytes, errors, and what has bytes of its own."""

    packed_as: ClassVar[tuple[str, int]]

    def to_bytes(self) -> bytes:
        return pack(*self.packed_as, encode_fields(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `IncompatibleVersion` where the processes of one job run different versions, `InvalidRequest`."""
        kind, newest = cls.packed_as
        version, body, blobs = unpack(kind, newest, data)
        if version != newest:
            raise IncompatibleVersion(
                peer="the writer of these bytes", what=kind, theirs=str(version), ours=str(newest)
            )
        return decode(cls, body, blobs)
