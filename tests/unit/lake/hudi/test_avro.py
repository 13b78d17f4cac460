# SPDX-License-Identifier: Apache-2.0
"""Avro and log blocks: what is written reads back, and what is broken is refused in words."""

from __future__ import annotations

import json

import pytest

from lakeward.lake.hudi.meta.avro import encode_metadata, read_bare, read_container, write_container, write_stat
from lakeward.lake.hudi.meta.columns import from_avro_record
from lakeward.lake.hudi.meta.properties import format_properties, parse_properties
from lakeward.lake.hudi.scan.logblock import DELETES, encode_block, encode_deletes, read_blocks

KEYS = ["a", "", "größer 漢字", "x" * 300]


def test_a_commits_metadata_reads_back() -> None:
    stat = write_stat(file_id="f", partition="day=1", name=".f_1.log.3_0-0-0", size=1 << 40, updates=3, deletes=2)
    data = encode_metadata([stat], operation="UPSERT", extra={"k": "v" * 5000}, replaced={"day=1": ["g"]})
    (body,) = read_container(data)
    (read,) = body["partitionToWriteStats"]["day=1"]
    assert {k: v for k, v in read.items() if k in stat} == stat
    assert stat["logVersion"] == 3
    assert (body["extraMetadata"], body["operationType"]) == ({"k": "v" * 5000}, "UPSERT")
    assert body["partitionToReplaceFileIds"] == {"day=1": ["g"]}


@pytest.mark.parametrize("cut", [0, 3, 40, -1])
def test_a_broken_container_is_refused(cut: int) -> None:
    data = write_container({"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}, {"n": -(2**62)})
    assert read_container(data) == [{"n": -(2**62)}]
    with pytest.raises(ValueError, match="it "):
        read_container(data[:cut])


def test_blocks_of_a_log_file_read_back() -> None:
    data = encode_block(DELETES, "20260101000000000", "{}", encode_deletes(KEYS, "day=1"))
    first, second = read_blocks(data + data)
    assert first.deleted_keys() == second.deleted_keys() == KEYS
    assert (first.kind, first.instant, first.row_count) == (DELETES, "20260101000000000", 0)
    with pytest.raises(ValueError, match="in the middle"):
        list(read_blocks(data[:-1]))
    with pytest.raises(ValueError, match="does not begin"):
        list(read_blocks(b"x" + data))


def test_rows_of_others_in_avro_become_arrow() -> None:
    schema = json.loads(
        """{"type": "record", "name": "r", "fields": [
        {"name": "d", "type": ["null", {"type": "fixed", "name": "fixed", "size": 2, "logicalType": "decimal",
         "precision": 4, "scale": 2}]},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}}]}"""
    )
    raw = b"\x02\xff\x38" + b"\x02\x02a\x0e\x00" + b"\x04\x00\x02\x02z\x00"
    row = read_bare(schema, raw)
    (found,) = from_avro_record(schema, [row], None).to_pylist()
    assert (str(found["d"]), found["m"], found["l"]) == ("-2.00", [("a", 7)], [None, "z"])
    assert from_avro_record(schema, [row], ["l"]).column_names == ["l"]


@pytest.mark.parametrize("value", ["", "a=b:c", " spaces ", "line\nline", "back\\slash", "größer 漢字 😀", '{"a": 1}'])
def test_properties_survive_their_text(value: str) -> None:
    values = {"some.key": value, "a key": "1"}
    assert parse_properties(format_properties(values)) == values
