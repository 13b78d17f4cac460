# SPDX-License-Identifier: Apache-2.0
"""Which buckets a filter lets out: by the values of their partition, and by the bucket that a key value belongs to.
Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.bucketing import assign_buckets
from lakeward.errors import LakewardError
from lakeward.lake.satisfiable import may_match
from lakeward.model import Bucket, PartitionKey, TableInfo, partition_values, to_arrow_schema
from lakeward.read.predicate import Condition, Predicate

MOST_KEYS = 64
"""Key values whose buckets are worked out; a filter that names more of them reads most buckets anyway."""


def prune_buckets(table: TableInfo, predicate: Predicate | None, buckets: Iterable[Bucket]) -> set[Bucket]:
    """Buckets that may hold a row for which the filter is true. In doubt a bucket stays."""
    remaining_buckets = sorted(set(buckets))
    if predicate is None or not remaining_buckets:
        return set(remaining_buckets)
    numbers = find_numbers(table, predicate)
    remaining_buckets = [b for b in remaining_buckets if numbers is None or b.number in numbers]
    if not table.descriptor.is_partitioned:
        return set(remaining_buckets)
    partitions = sorted({b.partition for b in remaining_buckets})
    schema = to_arrow_schema(table.schema)
    keys = table.descriptor.partitioning
    partition_values = [partition_facts(schema, keys, name) for name in partitions]
    possible = {
        name
        for name, may in zip(partitions, may_match(predicate.expression, schema, partition_values), strict=True)
        if may
    }
    return {b for b in remaining_buckets if b.partition in possible}


def find_numbers(table: TableInfo, predicate: Predicate) -> set[int] | None:
    """Bucket numbers that the filter's key values belong to; None where it does not fix the bucket keys."""
    keys = table.descriptor.bucket_keys
    if not keys or not predicate.any_of or table.descriptor.bucket_count == 1:
        return None
    numbers: set[int] = set()
    for conditions in predicate.any_of:
        rows = _key_rows(keys, conditions)
        if rows is None:
            return None
        assigned = _assign(table, keys, rows)
        if assigned is None:
            return None
        numbers |= assigned
    return numbers


def _key_rows(keys: Sequence[str], conditions: Sequence[Condition]) -> list[tuple[Any, ...]] | None:
    """Every combination of values that these conditions leave to the keys."""
    choices: list[list[Any]] = []
    for key in keys:
        fixed = next((_values(o, v) for c, o, v in conditions if c == key and _values(o, v) is not None), None)
        if fixed is None:
            return None
        choices.append(fixed)
    rows = list(itertools.islice(itertools.product(*choices), MOST_KEYS + 1))
    return rows if len(rows) <= MOST_KEYS else None


def _values(operator: str, value: Any) -> list[Any] | None:
    if operator in ("=", "=="):
        return [value]
    if operator == "in":
        return list(itertools.islice(value, MOST_KEYS + 1))
    return None


def _assign(table: TableInfo, keys: Sequence[str], rows: list[tuple[Any, ...]]) -> set[int] | None:
    """None where a value is not one of the key's type: whether it equals some key is the filter's matter."""
    schema = to_arrow_schema(table.schema)
    try:
        columns = [pa.array([row[at] for row in rows], schema.field(key).type) for at, key in enumerate(keys)]
        return set(assign_buckets(pa.table(columns, names=list(keys)), table.descriptor).tolist())
    except (pa.ArrowException, LakewardError, TypeError, ValueError, OverflowError):
        return None


def partition_facts(schema: pa.Schema, keys: Sequence[PartitionKey], partition: str) -> pc.Expression:
    """Condition that holds for every row of a partition."""
    facts = pc.scalar(True)
    for key, text in zip(keys, partition_values(partition), strict=True):
        facts = facts & key.fact(text, schema.field(key.column).type)
    return facts
