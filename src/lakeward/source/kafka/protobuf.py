# SPDX-License-Identifier: Apache-2.0
"""Messages in Protobuf: of a descriptor set, or framed with a schema registry that has the descriptors."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from lakeward.errors import InvalidRequest
from lakeward.model import Column
from lakeward.model import types as mt
from lakeward.source.kafka.decode import FramedDecoder
from lakeward.source.kafka.registry import RegisteredSchema, open_registry, schema_id, topic_schema

TIMESTAMP = "google.protobuf.Timestamp"
_KINDS: dict[int, mt.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: mt.Float64Type(), FieldDescriptor.TYPE_FLOAT: mt.Float32Type(),
    FieldDescriptor.TYPE_BOOL: mt.BooleanType(), FieldDescriptor.TYPE_STRING: mt.StringType(),
    FieldDescriptor.TYPE_BYTES: mt.BytesType(), FieldDescriptor.TYPE_ENUM: mt.StringType(),
    FieldDescriptor.TYPE_INT32: mt.Int32Type(), FieldDescriptor.TYPE_SINT32: mt.Int32Type(),
    FieldDescriptor.TYPE_SFIXED32: mt.Int32Type(), FieldDescriptor.TYPE_UINT64: mt.DecimalType(precision=20, scale=0),
    FieldDescriptor.TYPE_FIXED64: mt.DecimalType(precision=20, scale=0),
}  # fmt: skip
_MOST_VARINT = 5
"""Bytes of a 32-bit number."""

_WRAPPERS = "google/protobuf/wrappers.proto"


class ProtobufDecoder(FramedDecoder):
    @classmethod
    def topic_columns(cls, topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
        registry = open_registry(config)
        if registry is None or config.get("schema_file"):
            return _columns(_file_message(str(config["schema_file"]), str(config["message"])))
        pool, file = _load_pool(topic_schema(registry, topic, list(samples)))
        name = config.get("message")
        return _columns(_find_message(pool, str(name)) if name else next(iter(file.message_types_by_name.values())))

    def columns_in(self, value: bytes) -> list[Column]:
        return _columns(self._message_of(value)[0])

    def read(self, value: bytes) -> Mapping[str, Any]:
        descriptor, at = self._message_of(value)
        return _plan(descriptor)(_parse(descriptor, value[at:]))

    def _message_of(self, value: bytes) -> tuple[Descriptor, int]:
        """The descriptor of a message, and where its body begins. Raises `ValueError`, `IndexError`."""
        places, at = ((), 0) if self.registry is None else read_frame(value)
        if self.registry is None or self.config.get("schema_file"):
            return _file_message(str(self.config["schema_file"]), str(self.config["message"])), at
        _, file = _load_pool(self.registry.schema(schema_id(value)))
        first, *inner = places
        descriptor = list(file.message_types_by_name.values())[first]
        for place in inner:
            descriptor = descriptor.nested_types[place]
        return descriptor, at


def read_frame(value: bytes) -> tuple[tuple[int, ...], int]:
    """A zero byte, the schema's id, then a count and as many places of nested messages as varints; a count of 0 means
    the first message. The places, and where the message begins. Raises `ValueError`, `IndexError`."""
    schema_id(value)
    count, at = _varint(value, 5)
    if count < 0:
        raise ValueError("its list of message places has a negative length")
    places = []
    for _ in range(count):
        place, at = _varint(value, at)
        places.append(place)
    if any(place < 0 for place in places):
        raise ValueError("it names a message by a negative place")
    return tuple(places) or (0,), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    result = 0
    for place in range(_MOST_VARINT):
        byte = value[at + place]
        result |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at + place + 1
    raise ValueError(f"a number in its frame has more than {_MOST_VARINT} bytes")


# ---- descriptors ---------------------------------------------------------------------------------------------------
@lru_cache(10)
def _file_message(path: str, message: str) -> Descriptor:
    """Raises `InvalidRequest`."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return _find_message(pool, message)
    except (OSError, TypeError, ValueError, DecodeError) as error:
        reason = f"{error}; make it with `protoc --include_imports --descriptor_set_out=FILE`"
        raise InvalidRequest(what=f"--schema-file {path}", reason=reason) from error


def _find_message(pool: Any, message: str) -> Descriptor:
    """Raises `InvalidRequest`."""
    try:
        return pool.FindMessageTypeByName(message)  # type: ignore[no-any-return]
    except KeyError as error:
        raise InvalidRequest(
            what=f"--message {message}", reason="the schema has no message of this full name"
        ) from error


@lru_cache(1000)
def _load_pool(schema: RegisteredSchema) -> tuple[Any, Any]:
    """A pool with this file and those that it imports, and the file. Raises `ValueError`."""
    pool = descriptor_pool.DescriptorPool()
    return pool, _add_file(pool, schema, "lakeward.proto", set())


def _add_file(pool: Any, schema: RegisteredSchema, name: str, added: set[str]) -> Any:
    if schema.kind != "PROTOBUF":
        raise ValueError(f"its schema is of kind {schema.kind}, not PROTOBUF")
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (ValueError, DecodeError) as error:
        reason = "the registry has no descriptor of it (`format=serialized`); give --schema-file and --message"
        raise ValueError(reason) from error
    file.name = name
    for imported, used in schema.references:
        if imported not in added:
            added.add(imported)
            _add_file(pool, used, imported, added)
    for imported in file.dependency:
        if imported not in added:
            added.add(imported)
            _add_known(pool, imported)
    return pool.AddSerializedFile(file.SerializeToString()) or pool.FindFileByName(name)


def _add_known(pool: Any, name: str) -> None:
    """A file that comes with Protobuf itself. Raises `ValueError`."""
    from google.protobuf import (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    descriptors = {m.DESCRIPTOR.name: m.DESCRIPTOR for m in modules}
    if name not in descriptors:
        raise ValueError(f"its schema imports {name}, which the registry does not have")
    pool.AddSerializedFile(descriptors[name].serialized_pb)


def _parse(descriptor: Descriptor, body: bytes) -> Any:
    """Raises `ValueError`."""
    try:
        return message_factory.GetMessageClass(descriptor).FromString(body)
    except DecodeError as error:
        raise ValueError(str(error)) from error


# ---- columns and values --------------------------------------------------------------------------------------------
def _columns(descriptor: Descriptor) -> list[Column]:
    return [Column(name=f.name, type=_type(f)) for f in descriptor.fields]


def _type(field: FieldDescriptor) -> mt.DataType:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return mt.MapType(key=mt.StringType(nullable=False), value=_type(message.fields_by_name["value"]))
    element = _KINDS.get(field.type, mt.Int64Type()) if message is None else _message_type(message)
    return mt.ArrayType(element=element) if field.is_repeated else element


def _message_type(message: Descriptor) -> mt.DataType:
    if message.full_name == TIMESTAMP:
        return mt.TimestampLtzType(precision=6)
    if message.file.name == _WRAPPERS:
        return _type(message.fields_by_name["value"])
    return mt.RowType(fields=tuple(mt.RowField(name=f.name, type=_type(f)) for f in message.fields))


@lru_cache(1000)
def _plan(descriptor: Descriptor) -> Callable[[Any], dict[str, Any]]:
    """A function from a message to a dict by field. A field that can be absent and is, is None; others have their
    default."""
    fields = [(f.name, f.has_presence, _field_plan(f)) for f in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if optional and not message.HasField(name) else convert(getattr(message, name))
            for name, optional, convert in fields
        }

    return read


def _field_plan(field: FieldDescriptor) -> Callable[[Any], Any]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        one = _value_plan(message.fields_by_name["value"])
        return lambda value: [(str(k), one(v)) for k, v in value.items()]
    one = _value_plan(field)
    return (lambda value: [one(v) for v in value]) if field.is_repeated else one


def _value_plan(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return _moment
        if field.message_type.file.name == _WRAPPERS:
            return lambda value: value.value
        return lambda value: _plan(field.message_type)(value)
    if field.enum_type is not None:
        names = {number: v.name for number, v in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    return lambda value: value


def _moment(value: Any) -> datetime:
    return value.ToDatetime(tzinfo=UTC)  # type: ignore[no-any-return]
