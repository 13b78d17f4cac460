# SPDX-License-Identifier: Apache-2.0
"""Compares a lake table with its expected form, field by field. Ids and mutable properties do not count."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder

from lakeward.errors import LakeSchemaBroken
from lakeward.lake.iceberg.meta.mapping import VERSION_KEY, lake_order, lake_properties, lake_schema, lake_spec
from lakeward.lake.iceberg.meta.types import is_clean, spell_field
from lakeward.lake.iceberg.meta.version import VERSIONS
from lakeward.model import TableDescriptor, TableInfo
from lakeward.spi import is_of_fluss


def diff_table(descriptor: TableDescriptor, metadata: TableMetadata) -> list[str]:
    """Describes each difference in one line; empty: it matches."""
    schema = lake_schema(descriptor)
    lake_schema_now = metadata.schema()
    lines = _diff_columns(_spell_columns(schema), _spell_columns(lake_schema_now))
    lines += _diff_keys(schema, lake_schema_now)
    lines += _diff(
        "partitioning", spell_spec(lake_spec(descriptor, schema), schema), spell_spec(metadata.spec(), lake_schema_now)
    )
    if not descriptor.is_clean:
        order = spell_order(metadata.sort_order(), lake_schema_now)
        lines += _diff("sort order", spell_order(lake_order(schema), schema), order)
    return lines + _diff_version(metadata, int(lake_properties(descriptor)[VERSION_KEY]))


def _spell_columns(schema: Schema) -> dict[str, str]:
    return {f.name: spell_field(f) for f in schema.fields}


def _diff_columns(expected: dict[str, str], actual: dict[str, str]) -> list[str]:
    names = [name for name in {**expected, **actual} if expected.get(name) != actual.get(name)]
    if names:
        return [f"column {n}: expected {expected.get(n, 'none')}, found {actual.get(n, 'none')}" for n in names]
    return _diff("order of columns", ", ".join(expected), ", ".join(actual))


def _diff_keys(expected: Schema, actual: Schema) -> list[str]:
    return _diff(
        "identifier fields",
        ", ".join(sorted(expected.identifier_field_names())),
        ", ".join(sorted(actual.identifier_field_names())),
    )


def _diff_version(metadata: TableMetadata, at_least: int = min(VERSIONS)) -> list[str]:
    """Accepts a newer format version that Lakeward writes as well: another engine may upgrade the table."""
    version = int(metadata.format_version)
    fits = version in VERSIONS and version >= at_least
    return [] if fits else [f"format version: expected {at_least}, found {version}"]


def _diff(what: str, expected: str, actual: str) -> list[str]:
    return [] if expected == actual else [f"{what}: expected {expected or 'none'}, found {actual or 'none'}"]


def spell_spec(spec: PartitionSpec, schema: Schema) -> str:
    """Compares partition fields by source column and transform: field names may differ."""
    return ", ".join(f"{f.transform}({_name(schema, f.source_id)})" for f in spec.fields)


def spell_order(order: SortOrder, schema: Schema) -> str:
    return ", ".join(f"{f.transform}({_name(schema, f.source_id)}) {f.direction} {f.null_order}" for f in order.fields)


def _name(schema: Schema, field_id: int) -> str:
    return schema.find_column_name(field_id) or f"#{field_id}"


def check_fits(table: TableInfo, metadata: TableMetadata) -> None:
    """Checks that a round can write to the table. Raises `LakeSchemaBroken`. Columns of the lake that the
    round does not know are accepted if nullable or with a default: ALTER changes the lake first."""
    actual = metadata.schema()
    schema = lake_schema(table.descriptor, clean=is_clean(actual) if is_of_fluss(table.descriptor) else None)
    have = {f.name: spell_field(f) for f in actual.fields}
    lines = [
        f"column {f.name}: expected {spell_field(f)}, found {have.get(f.name, 'none')}"
        for f in schema.fields
        if have.get(f.name) != spell_field(f)
    ]
    names = {f.name for f in schema.fields}
    unknown = [f for f in actual.fields if f.name not in names and f.required and f.write_default is None]
    lines += [f"column {f.name}: unknown and required" for f in unknown]
    lines += _diff(
        "partitioning", spell_spec(lake_spec(table.descriptor, schema), schema), spell_spec(metadata.spec(), actual)
    )
    lines += _diff_version(metadata)
    if lines:
        raise LakeSchemaBroken(table=str(table.path), diff="; ".join(lines))
