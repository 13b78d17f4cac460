# SPDX-License-Identifier: Apache-2.0
"""Mapping of a table to Paimon: columns, keys, options, and differences of an existing table. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pypaimon import Schema
from pypaimon.schema import data_types as pai

from lakeward.bucketing import check_bucket_keys
from lakeward.errors import InvalidTable, LakeSchemaBroken, UnsupportedType
from lakeward.lake.core.columns import check_partition_keys
from lakeward.lake.paimon.meta.layout import is_clean
from lakeward.model import (
    BUCKET,
    OFFSET,
    TIMESTAMP,
    UNNAMED,
    Column,
    TableDescriptor,
    TableInfo,
    TablePath,
    TypeVisitor,
    leaves,
    spell,
)
from lakeward.model import types as model
from lakeward.spi import is_of_fluss

LAKE_PREFIX, OTHER_PREFIX = "paimon.", "fluss."
SYSTEM_FIELDS = ((BUCKET, "INT"), (OFFSET, "BIGINT"), (TIMESTAMP, "TIMESTAMP(3) WITH LOCAL TIME ZONE"))
"""System columns, which come last and are nullable, as in Fluss's own tiering."""

_DERIVED = frozenset({"bucket", "bucket-key", "sequence.field", "primary-key", "primary-key.nullable", "partition"})
"""Options that follow from a table's keys."""

_SCANS = re.compile(r"scan\.(mode|snapshot-id|tag-name|version|watermark|timestamp.*|.*creation-time.*)|incremental-.+")
"""Options of one read, which would affect writers too if set on the table."""

_UNKEPT = {
    "rowkind.field": "a row's kind of change is no column of it",
    "branch": "rounds write to the main branch",
    "path": "where a table lies follows from its name",
    "changelog-file.format": "rounds write Parquet",
    "file.format.per.level": "rounds write Parquet",
}
"""Options with which rounds, or readers of their files, fail."""

MERGE_ENGINE = "merge-engine"
_LATER = {
    "sequence.field.sort-order": ("ascending",),
    "ignore-delete": ("false",),
    "deduplicate.ignore-delete": ("false",),
    "first-row.ignore-delete": ("false",),
    "partial-update.ignore-delete": ("false",),
    "data-evolution.enabled": ("false",),
    "manifest.format": ("avro",),
    "write.native.enabled": ("true",),
}
"""As `_ALLOWED`, for options checked at creation only: a table created earlier with other values stays in use."""

_ALLOWED = {
    MERGE_ENGINE: ("deduplicate",),
    "file.format": ("parquet",),
    "deletion-vectors.enabled": ("false",),
    "row-tracking.enabled": ("false",),
    "bucket-function.type": ("default",),
    "changelog-producer": ("none", "input"),
    **_LATER,
}
"""Options of which rounds and compactions support only these values; the default comes first."""

_OTHER_ENGINES = {
    "partial-update": "a round brings whole rows, and there a null would not replace a value",
    "aggregation": "a round brings rows as they are by now, and there they would be added to those before",
    "first-row": "a key's later rows and deletes would be passed over, and it takes no sequence field",
}
"""Reasons why the lake would not have a round's rows."""

_RESERVED = re.compile("_KEY_.*|_SEQUENCE_NUMBER|_VALUE_KIND|_LEVEL|_ROW_ID|rowkind", re.DOTALL)
_TIME_DIGITS, _TIMESTAMP_DIGITS = 3, 6
_DIGITS = re.compile(r"\b(TIME|TIMESTAMP)\(\d\)")


def lake_schema(descriptor: TableDescriptor, table: str = UNNAMED, *, clean: bool | None = None) -> Any:
    """Schema of the user's columns, then the system columns. A clean table has no system columns; `clean` overrides the
    table's properties. Raises `UnsupportedType`."""
    system = () if (descriptor.is_clean if clean is None else clean) else SYSTEM_FIELDS
    nested = itertools.count(len(descriptor.schema.columns) + len(system))
    fields = [
        pai.DataField(at, c.name, to_paimon_type(c.type, f"{table}.{c.name}", nested), c.comment)
        for at, c in enumerate(descriptor.schema.columns)
    ]
    fields += [pai.DataField(len(fields) + at, name, pai.AtomicType(t)) for at, (name, t) in enumerate(system)]
    return Schema(
        fields=fields,
        partition_keys=list(descriptor.partition_keys),
        primary_keys=list(descriptor.primary_key),
        options=lake_options(descriptor),
        comment=descriptor.comment,
    )


def lake_options(descriptor: TableDescriptor) -> dict[str, str]:
    """Whether the lake table has buckets. Without a bucket key it has none, as no function spreads its rows; only the
    column `__bucket`, or a file's name, records the bucket."""
    mapped = {lake_key(k): v for k, v in descriptor.properties.items()}
    keys = [k for k in descriptor.bucket_keys if k not in descriptor.partition_keys]
    layout = {"bucket": str(descriptor.bucket_count), "bucket-key": ",".join(keys)} if keys else {"bucket": "-1"}
    has_offsets = not is_of_fluss(descriptor) and not descriptor.is_clean
    order = {"sequence.field": OFFSET} if descriptor.is_pk and has_offsets else {}
    return {"file.format": "parquet", "partition.legacy-name": "false", **mapped, **layout, **order}


def lake_key(key: str) -> str:
    """`paimon.X` -> `X`, any other `K` -> `fluss.K`."""
    return key.removeprefix(LAKE_PREFIX) if key.startswith(LAKE_PREFIX) else OTHER_PREFIX + key


def check_descriptor(path: TablePath, descriptor: TableDescriptor) -> None:
    """Refuses tables that rounds cannot write, before any change."""
    check_schema(path, descriptor)
    check_columns(str(path), descriptor.schema.columns)
    check_bucket_keys(descriptor)
    check_partition_keys(path, descriptor)
    for key, value in descriptor.properties.items():
        if reason := why_not(key, value):
            raise InvalidTable(table=str(path), field=key, value=value, reason=reason)


def check_schema(path: TablePath, descriptor: TableDescriptor) -> None:
    """Raises `UnsupportedType`, and `InvalidTable` for an option that Paimon itself refuses."""
    with refused_by_paimon(path, descriptor.properties):
        lake_schema(descriptor, str(path))


@contextmanager
def refused_by_paimon(path: TablePath, properties: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        options = ", ".join(f"{k}={v}" for k, v in properties.items() if k.startswith(LAKE_PREFIX))
        raise InvalidTable(table=str(path), field="properties", value=options, reason=str(error)) from error


def check_columns(table: str, columns: Iterable[Column]) -> None:
    """Checks new columns; existing tables with more precise times are still written. Raises `UnsupportedType`,
    `InvalidTable`."""
    for column in columns:
        if _RESERVED.fullmatch(column.name):
            raise InvalidTable(table=table, field="column", value=column.name, reason="this name is Paimon's own")
        if is_in_nanoseconds(column.type):
            reason = "Java's readers fail on nanoseconds that Paimon's native writer stores; declare 6 digits or fewer"
            raise UnsupportedType(where=f"{table}.{column.name}", type=column.type.sql, by="Paimon", reason=reason)


def is_in_nanoseconds(kind: model.DataType) -> bool:
    times = [t for t in leaves(kind) if isinstance(t, model.TimestampType | model.TimestampLtzType)]
    return any(t.precision > _TIMESTAMP_DIGITS for t in times)


def why_not(key: str, value: str | None) -> str | None:
    """Returns the reason why a property cannot be set to this value (None: removed); None: it can."""
    option = lake_key(key)
    if option in _DERIVED:
        return "rounds rely on what follows from the keys"
    if value is not None and (
        reason := "it is for one read alone" if _SCANS.fullmatch(option) else _UNKEPT.get(option)
    ):
        return reason
    allowed = _ALLOWED.get(option)
    if allowed is None or value is None or value in allowed:
        return None
    why = f": {_OTHER_ENGINES[value]}" if option == MERGE_ENGINE and value in _OTHER_ENGINES else ""
    return f"rounds rely on {' or '.join(allowed)}{why}"


class _ToPaimon(TypeVisitor[Any]):
    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def plain(self, kind: model.DataType, path: str) -> Any:
        if isinstance(kind, model.TimeType) and kind.precision > _TIME_DIGITS:
            reason = "times have 3 fractional digits there; declare 3 or fewer"
            raise UnsupportedType(where=path, type=kind.sql, by="Paimon", reason=reason)
        return pai.AtomicType(spell(kind, "paimon") or kind.sql, kind.nullable)

    def array(self, kind: model.ArrayType, element: Any) -> Any:
        return pai.ArrayType(kind.nullable, element)

    def map(self, kind: model.MapType, key: Any, value: Any) -> Any:
        return pai.MapType(kind.nullable, key, value)

    def field(self, field: model.RowField, path: str) -> Any:
        return pai.DataField(next(self._ids), field.name, self.visit(field.type, path))

    def row(self, kind: model.RowType, fields: Sequence[Any], path: str) -> Any:
        return pai.RowType(kind.nullable, list(fields))


def to_paimon_type(kind: model.DataType, where: str, ids: Iterator[int] | None = None) -> Any:
    """Converts a type; ids of nested fields are counted from `ids`. Raises `UnsupportedType`."""
    return _ToPaimon(ids if ids is not None else itertools.count()).visit(kind, where)


def diff_table(descriptor: TableDescriptor, lake_table: Any, foreign: Collection[str] = ()) -> list[str]:
    """Describes the differences; none if the table matches. Ignores options that rounds do not depend on, and `foreign`
    columns."""
    lake, plain = lake_table.table_schema, is_of_fluss(descriptor)
    expected = lake_schema(descriptor, clean=is_clean(lake_table) if plain else None)
    have, due = ({f.name: _type_text(f.type, is_plain=plain) for f in s.fields} for s in (lake, expected))
    have = {name: text for name, text in have.items() if name not in foreign or name in due}
    lines = [
        f"column {name}: lake {have.get(name, 'has none')}, wanted {due.get(name, 'none')}"
        for name in dict.fromkeys((*have, *due))
        if have.get(name) != due.get(name)
    ]
    if not lines and list(have) != list(due):
        lines.append(f"column order: lake {', '.join(have)}, wanted {', '.join(due)}")
    for what in ("primary_keys", "partition_keys"):
        a, b = list(getattr(lake, what)), list(getattr(expected, what))
        if a != b:
            lines.append(f"{what.replace('_', ' ')}: lake {', '.join(a) or 'none'}, wanted {', '.join(b) or 'none'}")
    wrong = _wrong_values(lake.options, expected.options, ("bucket", "bucket-key", "sequence.field"))
    return [*lines, *spell_options(lake.options, wrong)]


def wrong_options(descriptor: TableDescriptor, found: Mapping[str, str]) -> dict[str, str | None]:
    """Returns options that another engine changed and that stop rounds -> the expected value; None: not set."""
    derived = () if is_of_fluss(descriptor) else ("bucket", "sequence.field")
    return _wrong_values(found, lake_options(descriptor), derived)


def check_options(table: TableInfo, found: Mapping[str, str]) -> None:
    """Raises `LakeSchemaBroken`, which stops writers and commits."""
    if due := wrong_options(table.descriptor, found):
        raise LakeSchemaBroken(table=str(table.path), diff="; ".join(spell_options(found, due)))


def spell_options(found: Mapping[str, str], due: Mapping[str, str | None]) -> list[str]:
    return [f"option {key}: lake {found.get(key, 'none')}, wanted {value or 'none'}" for key, value in due.items()]


def _wrong_values(found: Mapping[str, str], wanted: Mapping[str, str], derived: Iterable[str]) -> dict[str, str | None]:
    """Returns an option's value; a default may be omitted."""
    allowed_values = {
        key: found.get(key, allowed[0]) in allowed or (key in _LATER and key in wanted)
        for key, allowed in _ALLOWED.items()
    }
    wrong = [
        *(key for key in derived if found.get(key) != wanted.get(key)),
        *(k for k, is_kept in allowed_values.items() if not is_kept),
    ]
    return {key: wanted.get(key, _ALLOWED[key][0] if key in _ALLOWED else None) for key in wrong}


def _type_text(kind: Any, *, is_plain: bool) -> str:
    """Spells a type. `is_plain`: without the precision of times, which may differ in tables that Fluss made."""
    return _DIGITS.sub(r"\1", str(kind)) if is_plain else str(kind)


def paimon_type_of(column: Column, table: str) -> Any:
    return to_paimon_type(column.type, f"{table}.{column.name}")
