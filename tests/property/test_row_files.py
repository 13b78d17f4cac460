# SPDX-License-Identifier: Apache-2.0
"""What `lakeward read` prints, `lakeward write` takes: every type and depth, in JSON and CSV, nulls and empty texts."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.changelog.rowdiff import altered_offsets
from lakeward.cli.files.rowfiles import WriteFormat, read_file
from lakeward.cli.files.rowprint import ReadFormat, write_rows
from lakeward.client.rows import fit_rows
from lakeward.model import OFFSET, Schema, TableDescriptor, TableId, TableInfo, TablePath, from_arrow_schema
from tests.property.test_verify_rows import Double, Single, build, shapes

NAN = {Double: 0x7FF8000000000000, Single: 0x7FC00000}


def plain(value: Any) -> Any:
    """Text knows one NaN."""
    if isinstance(value, Double | Single):
        bits, mask = (0x7FF, 52) if isinstance(value, Double) else (0xFF, 23)
        is_nan = (value >> mask) & bits == bits and value & ((1 << mask) - 1) != 0
        return type(value)(NAN[type(value)]) if is_nan else value
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return type(value)(plain(v) for v in value) if isinstance(value, list | tuple) else value


@settings(max_examples=settings().max_examples // 2)
@given(st.data(), st.sampled_from([ReadFormat.JSON, ReadFormat.CSV]))
def test_what_read_prints_write_takes(data: st.DataObject, format: ReadFormat) -> None:
    drawn = data.draw(st.lists(shapes(), min_size=1, max_size=3))
    count = data.draw(st.integers(1, 5))
    kinds = [kind for kind, _ in drawn]
    values = [[plain(data.draw(st.none() | of)) for _ in range(count)] for _, of in drawn]
    names = [f"c{i}" for i in range(len(kinds))]
    rows = pa.record_batch([build(v, k) for v, k in zip(values, kinds, strict=True)], names=names)
    schema = Schema(schema_id=1, columns=from_arrow_schema(rows.schema))
    info = TableInfo(
        path=TablePath("db", "t"), table_id=TableId("1"), descriptor=TableDescriptor(schema=schema), created_at_ms=0
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows"
        with io.TextIOWrapper(file.open("wb"), encoding="utf-8", write_through=True) as out, redirect_stdout(out):
            write_rows(rows.schema, [rows], format)
        chunks = list(read_file(str(file), WriteFormat(str(format)), schema))
    back = pa.concat_tables([fit_rows(c.rows, info, schema.names) for c in chunks])
    place = pa.array(range(count), pa.int64())
    before, after = (t.append_column(OFFSET, place) for t in (pa.Table.from_batches([rows]), back))
    offsets, compared = altered_offsets(before, after, names)
    assert (offsets.tolist(), compared) == ([], count)
