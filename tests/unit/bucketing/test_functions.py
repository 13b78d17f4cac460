# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of the bucket functions, their edges, and the key types they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lakeward.bucketing import assign, assign_buckets, check_bucket_keys, choose_function, fluss, iceberg, paimon
from lakeward.bucketing.hudi import hash_text
from lakeward.bucketing.javatext import date_time_text, float_text, instant_text
from lakeward.bucketing.keybytes import KeyBytes
from lakeward.bucketing.murmur import Hashes, Tail, hash_bytes
from lakeward.errors import InvalidRequest, UnsupportedBucketKey
from lakeward.model import BucketFunction as F
from lakeward.model import Column, Schema, TableDescriptor, parse_type

RAW = [
    (bytes([0, 10]), 7),
    (bytes([0, 10, 10, 10]), 12),
    (b"2bb87d68-baf9-4e64-90f9-f80910419fa6", 16),
    (b"The quick brown fox jumps over the lazy dog", 8),
]
ToBuckets = Callable[[Hashes, int], npt.NDArray[np.int32]]


@pytest.mark.parametrize(
    ("to_buckets", "seed", "tail", "wanted"),
    [
        (fluss.to_buckets, fluss.SEED, Tail.SIGNED_BYTES, [1, 0, 6, 6]),
        (paimon.to_buckets, paimon.SEED, Tail.SIGNED_BYTES, [1, 11, 12, 0]),
        (iceberg.to_buckets, iceberg.SEED, Tail.STANDARD, [3, 4, 12, 3]),
    ],
    ids=["fluss", "paimon", "iceberg"],
)
def test_buckets_of_raw_key_bytes(to_buckets: ToBuckets, seed: int, tail: Tail, wanted: list[int]) -> None:
    lengths = np.array([len(raw) for raw, _ in RAW], np.int64)
    keys = KeyBytes(np.frombuffer(b"".join(raw for raw, _ in RAW), np.uint8), np.cumsum(lengths) - lengths, lengths)
    hashes = hash_bytes(keys, seed, tail)
    assert [int(to_buckets(hashes[i : i + 1], count)[0]) for i, (_, count) in enumerate(RAW)] == wanted


@pytest.mark.parametrize(
    ("function", "sqls", "row", "wanted"),
    [
        (F.ICEBERG, ["INT"], (1,), (2, 0, 4)),
        (F.ICEBERG, ["INT"], (42,), (2, 2, 14)),
        (F.ICEBERG, ["INT"], (300,), (1, 2, 6)),
        (F.ICEBERG, ["INT"], (-1,), (1, 0, 8)),
        (F.ICEBERG, ["BIGINT"], (-1,), (1, 0, 8)),
        (F.ICEBERG, ["STRING"], ("a",), (2, 2, 2)),
        (F.ICEBERG, ["STRING"], ("hello world",), (2, 3, 15)),
        (F.PAIMON, ["INT"], (1,), (1, 2, 14)),
        (F.PAIMON, ["INT"], (42,), (0, 1, 5)),
        (F.PAIMON, ["STRING"], ("a",), (0, 2, 14)),
        (F.PAIMON, ["STRING"], ("hello world",), (2, 2, 2)),
        (F.PAIMON, ["INT", "STRING"], (1, "abc"), (0, 1, 1)),
        (F.FLUSS, ["INT"], (1,), (0, 0, 12)),
        (F.FLUSS, ["INT"], (42,), (2, 2, 10)),
        (F.FLUSS, ["INT"], (300,), (1, 1, 5)),
        (F.FLUSS, ["INT"], (-1,), (0, 2, 10)),
        (F.FLUSS, ["STRING"], ("a",), (1, 3, 11)),
    ],
)
def test_golden_buckets(function: F, sqls: list[str], row: tuple[Any, ...], wanted: tuple[int, int, int]) -> None:
    types = [parse_type(s) for s in sqls]
    columns = [pa.array([value]) for value in row]
    assert tuple(int(assign(function, columns, types, n)[0]) for n in (3, 4, 16)) == wanted


def test_the_iceberg_specifications_own_hashes() -> None:
    """Appendix B of the specification: 34 as long, a date before and after 1970, a decimal, text."""
    count = 2**31 - 1
    for value, sql, wanted in [
        (34, "BIGINT", 2017239379),
        (date(2017, 11, 16), "DATE", -653330422),
        ("iceberg", "STRING", 1210000089),
        (b"\x00\x01\x02\x03", "BYTES", -188683207),
    ]:
        found = assign(F.ICEBERG, [pa.array([value])], [parse_type(sql)], count)
        assert found.tolist() == [(wanted & 0x7FFFFFFF) % count]


def test_nulls_are_refused_where_the_key_bytes_have_no_form_for_them() -> None:
    column = pa.array([1] * 40_000 + [None])
    with pytest.raises(InvalidRequest, match=r"column id, row 40000: null"):
        assign(F.FLUSS, [column], [parse_type("BIGINT")], 4, ["id"])
    assert assign(F.ICEBERG, [column], [parse_type("BIGINT")], 4)[-1] == 0
    assert len(assign(F.PAIMON, [column], [parse_type("BIGINT")], 4)) == 40_001


@pytest.mark.parametrize("value", ["a,b", "__null__", "__empty__"])
def test_hudis_reserved_texts_are_refused_in_composite_keys_only(value: str) -> None:
    text = parse_type("STRING")
    assert len(assign(F.HUDI, [pa.array([value])], [text], 4)) == 1
    with pytest.raises(InvalidRequest, match="row 1"):
        assign(F.HUDI, [pa.array(["ok", value]), pa.array([1, 2])], [text, parse_type("INT")], 4)


def test_hudi_hashes_a_list_of_texts() -> None:
    assert hash_text("Lakeward") == 0x7FFFFFFF & sum(ord(c) * 31**i for i, c in enumerate(reversed("Lakeward"))) | (
        sum(ord(c) * 31**i for i, c in enumerate(reversed("Lakeward"))) & 0x80000000
    )
    both = assign(F.HUDI, [pa.array(["a"]), pa.array([7])], [parse_type("STRING"), parse_type("INT")], 1000)
    assert both.tolist() == [((31 + ord("a")) * 31 + ord("7")) % 1000]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (0.001, "0.001"), (9.99e-4, "9.99E-4"), (1234567.0, "1234567.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"), (-2.5, "-2.5"), (1e300, "1.0E300"), (5e-324, "4.9E-324"), (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"), (100.0, "100.0"), (0.1 + 0.2, "0.30000000000000004"),
    ],
)  # fmt: skip
def test_floats_are_spelled_as_java_does(value: float, wanted: str) -> None:
    assert float_text(np.float64(value)) == wanted


def test_float32_uses_its_own_shortest_digits() -> None:
    assert float_text(np.float32(0.1)) == "0.1"
    assert float_text(np.float32(16777216)) == "1.6777216E7"


@pytest.mark.parametrize(
    ("millis", "nanos", "local", "instant"),
    [
        (0, 0, "1970-01-01T00:00", "1970-01-01T00:00:00Z"),
        (-1, 0, "1969-12-31T23:59:59.999", "1969-12-31T23:59:59.999Z"),
        (1_000, 0, "1970-01-01T00:00:01", "1970-01-01T00:00:01Z"),
        (60_000, 1_000, "1970-01-01T00:01:00.000001", "1970-01-01T00:01:00.000001Z"),
        (1, 1, "1970-01-01T00:00:00.001000001", "1970-01-01T00:00:00.001000001Z"),
        (253_402_300_800_000, 0, "+10000-01-01T00:00", "+10000-01-01T00:00:00Z"),
        (-62_167_219_200_001, 0, "-0001-12-31T23:59:59.999", "-0001-12-31T23:59:59.999Z"),
    ],
)
def test_moments_are_spelled_as_java_does(millis: int, nanos: int, local: str, instant: str) -> None:
    assert (date_time_text(millis, nanos), instant_text(millis, nanos)) == (local, instant)


def test_hudi_takes_floats_and_moments() -> None:
    at = pa.array([datetime(1969, 12, 31, 23, 0, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    found = assign(F.HUDI, [at], [parse_type("TIMESTAMP_LTZ(6)")], 997)
    assert found.tolist() == [((31 + hash_text("1969-12-31T23:00:00Z")) & 0x7FFFFFFF) % 997]
    found = assign(F.HUDI, [pa.array([1e7])], [parse_type("DOUBLE")], 997)
    assert found.tolist() == [((31 + hash_text("1.0E7")) & 0x7FFFFFFF) % 997]


def test_no_rows_give_no_buckets() -> None:
    for function in F:
        assert len(assign(function, [pa.array([], pa.string())], [parse_type("STRING")], 4)) == 0


def test_other_spellings_of_a_type_give_the_same_buckets() -> None:
    texts = pa.array(["a", "b", "a"])
    for other in (
        texts.cast(pa.large_string()),
        texts.dictionary_encode(),
        pa.chunked_array([texts.slice(0, 1), texts.slice(1)]),
    ):
        for function in F:
            text = [parse_type("STRING")]
            assert assign(function, [other], text, 7).tolist() == assign(function, [texts], text, 7).tolist()


def descriptor(sqls: dict[str, str], function: F, keys: tuple[str, ...]) -> TableDescriptor:
    schema = Schema(columns=tuple(Column(name=n, type=parse_type(s)) for n, s in sqls.items()))
    return TableDescriptor(schema=schema, bucket_keys=keys, bucket_count=4, bucket_function=function)


@pytest.mark.parametrize(
    ("function", "sql"),
    [(f, s) for f in F for s in ("ARRAY<INT>", "MAP<INT, INT>", "ROW<x INT>")]
    + [(F.ICEBERG, s) for s in ("BOOLEAN", "TINYINT", "SMALLINT", "FLOAT", "DOUBLE", "TIMESTAMP_LTZ(6)")]
    + [(F.HUDI, s) for s in ("BYTES", "BINARY(3)")],
)
def test_key_types_are_refused_when_a_table_is_created(function: F, sql: str) -> None:
    wrong = descriptor({"k": sql}, function, ("k",))
    with pytest.raises(UnsupportedBucketKey, match="column k"):
        check_bucket_keys(wrong)
    with pytest.raises(UnsupportedBucketKey):
        assign(function, [pa.nulls(1)], [parse_type(sql)], 4)


def test_iceberg_takes_one_key_and_others_fall_to_fluss() -> None:
    columns = {"a": "BIGINT", "b": "STRING", "c": "TINYINT"}
    with pytest.raises(UnsupportedBucketKey, match="one key column"):
        check_bucket_keys(descriptor(columns, F.ICEBERG, ("a", "b")))
    assert choose_function(F.ICEBERG, descriptor(columns, F.FLUSS, ("a",))) is F.ICEBERG
    assert choose_function(F.ICEBERG, descriptor(columns, F.FLUSS, ("a", "b"))) is F.FLUSS
    assert choose_function(F.ICEBERG, descriptor(columns, F.FLUSS, ("c",))) is F.FLUSS
    assert choose_function(F.PAIMON, descriptor(columns, F.FLUSS, ("a", "b"))) is F.PAIMON
    assert choose_function(F.FLUSS, descriptor(columns, F.FLUSS, ("a",))) is F.FLUSS


def test_a_tables_rows_are_assigned_by_its_own_keys() -> None:
    table = descriptor({"a": "BIGINT", "b": "STRING"}, F.PAIMON, ("b", "a"))
    rows = pa.table({"a": [1, 2], "b": ["x", "y"], "other": [0, 0]})
    types = [parse_type("STRING"), parse_type("BIGINT")]
    assert (
        assign_buckets(rows, table).tolist()
        == assign(F.PAIMON, [rows.column("b"), rows.column("a")], types, 4).tolist()
    )
