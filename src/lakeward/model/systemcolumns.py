# SPDX-License-Identifier: Apache-2.0
"""The system columns as Arrow fields: what a hot store adds to a row of its log, what the lake keeps of them."""

from __future__ import annotations

import pyarrow as pa

from lakeward.model.schema import BUCKET, CHANGE_TYPE, OFFSET, PREV_OFFSET, TIMESTAMP

TIMESTAMP_COLUMN_TYPE = pa.timestamp("ms", tz="UTC")

BUCKET_FIELD = pa.field(BUCKET, pa.int32(), nullable=False)
OFFSET_FIELD = pa.field(OFFSET, pa.int64(), nullable=False)
TIMESTAMP_FIELD = pa.field(TIMESTAMP, TIMESTAMP_COLUMN_TYPE, nullable=False)
CHANGE_TYPE_FIELD = pa.field(CHANGE_TYPE, pa.int8(), nullable=False)
PREV_OFFSET_FIELD = pa.field(PREV_OFFSET, pa.int64())

LAKE_FIELDS = (BUCKET_FIELD, OFFSET_FIELD, TIMESTAMP_FIELD)
LAKE_NAMES = tuple(f.name for f in LAKE_FIELDS)
SNAPSHOT_FIELDS = (OFFSET_FIELD, TIMESTAMP_FIELD)
LOG_FIELDS = (OFFSET_FIELD, TIMESTAMP_FIELD, CHANGE_TYPE_FIELD)


def log_fields(*, is_pk: bool) -> tuple[pa.Field, ...]:
    """Fields of the system columns of a log read; a PK table also has the offset of the row that a change replaces."""
    return (*LOG_FIELDS, PREV_OFFSET_FIELD) if is_pk else LOG_FIELDS
