from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Path(_message.Message):
    __slots__ = ("database", "table")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    database: str
    table: str
    def __init__(self, database: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class AddColumn(_message.Message):
    __slots__ = ("name", "type", "comment", "position")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: bytes
    comment: str
    position: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[bytes] = ..., comment: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class AlterConfig(_message.Message):
    __slots__ = ("key", "value", "how")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    how: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., how: _Optional[int] = ...) -> None: ...

class AlterTableRequest(_message.Message):
    __slots__ = ("path", "ignore", "configs", "columns")
    PATH_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    path: Path
    ignore: bool
    configs: _containers.RepeatedCompositeFieldContainer[AlterConfig]
    columns: _containers.RepeatedCompositeFieldContainer[AddColumn]
    def __init__(self, path: _Optional[_Union[Path, _Mapping]] = ..., ignore: bool = ..., configs: _Optional[_Iterable[_Union[AlterConfig, _Mapping]]] = ..., columns: _Optional[_Iterable[_Union[AddColumn, _Mapping]]] = ...) -> None: ...

class KeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PartitionSpec(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, values: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class DropPartitionRequest(_message.Message):
    __slots__ = ("path", "spec", "ignore")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    path: Path
    spec: PartitionSpec
    ignore: bool
    def __init__(self, path: _Optional[_Union[Path, _Mapping]] = ..., spec: _Optional[_Union[PartitionSpec, _Mapping]] = ..., ignore: bool = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("path", "json", "ignore_if_exists")
    PATH_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    IGNORE_IF_EXISTS_FIELD_NUMBER: _ClassVar[int]
    path: Path
    json: bytes
    ignore_if_exists: bool
    def __init__(self, path: _Optional[_Union[Path, _Mapping]] = ..., json: _Optional[bytes] = ..., ignore_if_exists: bool = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Sample(_message.Message):
    __slots__ = ("number", "word", "blob", "loose", "tight")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    LOOSE_FIELD_NUMBER: _ClassVar[int]
    TIGHT_FIELD_NUMBER: _ClassVar[int]
    number: int
    word: str
    blob: bytes
    loose: _containers.RepeatedScalarFieldContainer[int]
    tight: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., word: _Optional[str] = ..., blob: _Optional[bytes] = ..., loose: _Optional[_Iterable[int]] = ..., tight: _Optional[_Iterable[int]] = ...) -> None: ...

class NewerSample(_message.Message):
    __slots__ = ("number", "more", "words")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    more: int
    words: str
    def __init__(self, number: _Optional[int] = ..., more: _Optional[int] = ..., words: _Optional[str] = ...) -> None: ...
