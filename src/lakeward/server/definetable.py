# SPDX-License-Identifier: Apache-2.0
"""A new table as people write it, as the descriptor that is made of it."""

from __future__ import annotations

from lakeward.client.columns import as_names, parse_columns, with_key
from lakeward.config import options
from lakeward.model import BucketFunction, Schema, TableDescriptor
from lakeward.protocol.tables import DefineTable


def describe_table(asked: DefineTable) -> TableDescriptor:
    """Raises `InvalidRequest`, `InvalidTable` and what else is wrong with columns."""
    key = as_names(asked.primary_key)
    properties = {} if asked.freshness is None else {options.TABLE_DATALAKE_FRESHNESS.key: asked.freshness}
    return TableDescriptor(
        schema=Schema(columns=with_key(parse_columns(asked.columns), key)),
        primary_key=key,
        partition_keys=as_names(asked.partition_by),
        bucket_keys=(),
        bucket_count=asked.buckets,
        bucket_function=BucketFunction.FLUSS,
        properties=properties,
        comment=asked.comment,
    )
