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
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

from lakeward.errors import InvalidInput, InvalidRequest, LakewardError, from_wire, to_wire
from lakeward.model.bucket import Bucket
from lakeward.model.ids import Id
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.side import SideName
from lakeward.model.split import LogSplit, SnapshotSplit, Split, split_from_json
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.model.versioned import OwnBytes

T = typing.TypeVar("T")

_TEXT = (Bucket, SideName, TablePath)
_OWN_JSON = (OffsetMap, TableInfo, TableDescriptor)
_PLAIN = (str, int, bool, float, bytes)

_MOST = 2**63
_DEEPEST = 64
"""Levels of JSON: a nested type of a dozen levels has some thirty."""


def encode(value: Any) -> Any:
    """Plain JSON values of a message; bytes stay bytes."""
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, _TEXT):
        return str(value)
    if isinstance(value, (*_OWN_JSON, LogSplit, SnapshotSplit)):
        return value.to_json()
    if isinstance(value, OwnBytes):
        return value.to_bytes()
    if isinstance(value, LakewardError):
        return to_wire(value)
    if isinstance(value, OffsetRange):
        return [value.start, value.stop]
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return encode_fields(value)
    if hasattr(value, "model_dump_json"):  # of another library's models, which say themselves what they are in JSON
        return value.model_dump_json()
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(v) for v in value]
    return value


def encode_fields(message: Any) -> dict[str, Any]:
    """A dataclass by its fields, whatever else it could be."""
    return {name: encode(getattr(message, f.name)) for f in dataclasses.fields(message) for name in _names(f)}


def decode(kind: type[T], body: Any, blobs: Sequence[bytes] = ()) -> T:
    """The message again; a field of bytes has the number of one of `blobs`. Raises `InvalidRequest` naming the field
    that does not fit.
    """
    try:
        if issubclass(kind, OwnBytes):
            return typing.cast(T, _decode_dataclass(kind, body, kind.__name__, blobs))
        return typing.cast(T, _decode(kind, body, kind.__name__, blobs))
    except InvalidInput:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise InvalidRequest(what=kind.__name__, reason=f"{type(error).__name__}: {error}") from error


def _decode(kind: Any, body: Any, where: str, blobs: Sequence[bytes]) -> Any:
    kind = getattr(kind, "__supertype__", kind)
    if kind is float:
        return _finite(_expect((int, float), body, where), where)
    if kind is int:
        return _bounded(_expect(int, body, where), where)
    if kind is str or kind is bool:
        return _expect(kind, body, where)
    if kind is bytes:
        return blobs[_expect(int, body, where)]
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(kind, body, where, blobs)
    if origin is tuple or origin is list:
        return _decode_sequence(kind, origin, body, where, blobs)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        key, value = typing.get_args(kind)
        pairs = _expect(dict, body, where).items()
        return {_decode_key(key, k): _decode(value, v, f"{where}.{k}", blobs) for k, v in pairs}
    if kind is Any:
        return body
    if kind in _TEXT:
        return kind.parse(_expect(str, body, where))
    if kind in _OWN_JSON:
        return kind.from_json(_expect(dict, body, where))
    if kind is OffsetRange:
        start, stop = _expect(list, body, where)
        return OffsetRange(start, stop)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(body)
    if isinstance(kind, type) and issubclass(kind, Id):
        return kind(_expect(str, body, where))
    if issubclass(kind, OwnBytes):
        return kind.from_bytes(blobs[_expect(int, body, where)])
    if issubclass(kind, LakewardError):
        return from_wire(_expect(dict, body, where))
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type, kind), body, where, blobs)
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(_expect(str, body, where))
    return _expect(kind, body, where)


def _finite(number: float, where: str) -> float:
    if not -_MOST < number < _MOST:
        raise InvalidRequest(what=where, reason="a finite number of some size is expected")
    return float(number)


def _bounded(number: int, where: str) -> int:
    if not -_MOST <= number < _MOST:
        raise InvalidRequest(what=where, reason="an integer of 64 bits is expected")
    return number


def load_json(raw: bytes | str, what: str) -> Any:
    """What a peer sent. Raises `InvalidRequest`, also for NaN, for integers of thousands of digits, and for nesting
    that no message has."""
    try:
        body = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(what=what, reason=f"no JSON: {str(error)[:200]}") from error
    _check_depth(body, what)
    return body


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _check_depth(body: Any, what: str) -> None:
    level = [body]
    for _ in range(_DEEPEST):
        level = [v for b in level if isinstance(b, dict | list) for v in (b.values() if isinstance(b, dict) else b)]
        if not level:
            return
    raise InvalidRequest(what=what, reason=f"nested more than {_DEEPEST} levels deep")


def _decode_union(kind: Any, body: Any, where: str, blobs: Sequence[bytes]) -> Any:
    if kind == Split:
        return split_from_json(_expect(dict, body, where))
    arms = [a for a in typing.get_args(kind) if a is not type(None)]
    if body is None:
        if len(arms) == len(typing.get_args(kind)):
            raise InvalidRequest(what=where, reason="null is not allowed")
        return None
    if len(arms) != 1:
        raise InvalidRequest(what=where, reason="a message field has one type, or one type and null")
    return _decode(arms[0], body, where, blobs)


def _decode_sequence(kind: Any, origin: Any, body: Any, where: str, blobs: Sequence[bytes]) -> Any:
    element = typing.get_args(kind)[0]
    return origin(_decode(element, v, f"{where}[{i}]", blobs) for i, v in enumerate(_expect(list, body, where)))


def _decode_key(kind: Any, key: str) -> Any:
    kind = getattr(kind, "__supertype__", kind)
    if kind in _TEXT:
        return kind.parse(key)
    if isinstance(kind, type) and issubclass(kind, Id):
        return kind(key)
    return int(key) if kind is int else key


def _decode_dataclass(kind: type, body: Any, where: str, blobs: Sequence[bytes]) -> Any:
    values = _expect(dict, body, where)
    hints, given = _hints(kind), {}
    for f in dataclasses.fields(kind):
        name = next((n for n in _names(f) if n in values), None)
        if name is not None:
            given[f.name] = _decode(hints[f.name], values[name], f"{where}.{name}", blobs)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise InvalidRequest(what=f"{where}.{f.name}", reason="the field is missing")
    return kind(**given)


def _names(f: dataclasses.Field[Any]) -> tuple[str, ...]:
    """As the field is called, and as older peers call it (`metadata={"was": ...}`): both are sent, either is read."""
    was = f.metadata.get("was")
    return (f.name,) if was is None else (f.name, was)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _expect(kind: Any, body: Any, where: str) -> Any:
    if not isinstance(body, kind) or (isinstance(body, bool) and kind is not bool):
        wanted = getattr(kind, "__name__", "number")
        raise InvalidRequest(what=where, reason=f"expected {wanted}, got {type(body).__name__}")
    return body
