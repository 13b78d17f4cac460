# SPDX-License-Identifier: Apache-2.0
"""Checks an Iceberg table that Lakeward wrote, by its files alone: no server, no catalog, and nothing of Lakeward.

Run by itself it needs PyIceberg with PyArrow: python offline.py WAREHOUSE DATABASE.TABLE"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSelector
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable

CERTIFICATE, ROUND, OFFSETS, ROWS = "lakeward.certificate", "lakeward.round", "fluss-offsets", "lakeward.total-rows"
SHOWN, SUM = 10, 1 << 63


def find_metadata(warehouse: str, table: str, properties: dict[str, str]) -> str:
    """The newest metadata file of the table: the one with the highest version in its name."""
    database, _, name = table.partition(".")
    folder = f"{warehouse.rstrip('/')}/{database}/{name}/metadata"
    io = load_file_io(properties=properties, location=folder)
    scheme, netloc, path = io.parse_location(folder)  # type: ignore[attr-defined]
    listed = io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path))  # type: ignore[attr-defined]
    names = [each.base_name for each in listed if each.base_name.endswith(".metadata.json")]
    if not names:
        raise FileNotFoundError(f"{folder} holds no metadata of an Iceberg table")
    return f"{folder}/{max(names, key=lambda n: (int((re.match(r'v?([0-9]+)', n) or [0, 0])[1]), n))}"


def check(warehouse: str, table: str, properties: dict[str, str] | None = None) -> dict[str, Any]:
    """`findings`: what is wrong; `unchecked`: what could not be checked, with the reason."""
    loaded = StaticTable.from_metadata(find_metadata(warehouse, table, properties or {}), properties or {})
    report: dict[str, Any] = {"table": table, "findings": [], "unchecked": [], "rows": 0}
    lineage = _lineage(loaded)
    ours = [s for s in lineage if ROUND in _summary(s)]
    certified = [(s, _summary(s)[CERTIFICATE]) for s in ours if CERTIFICATE in _summary(s)]
    report |= {"snapshots": len(ours), "certificates": len(certified)}
    if not ours:
        return {**report, "unchecked": ["no snapshot of Lakeward is among the head's ancestors"]}
    report["findings"] += [
        f"snapshot {s.snapshot_id} is another engine's {_summary(s).get('operation')}"
        for s in lineage[lineage.index(ours[0]) :]
        if ROUND not in _summary(s) and _summary(s).get("operation") != "replace"
    ]
    report["findings"] += _check_chain(certified)
    _check_rows(loaded, ours[-1], lineage[-1], report)
    if certified:
        _check_values(loaded, certified, lineage[-1], report)
    report["unchecked"] += [] if certified else ["values: no snapshot has a certificate (table.datalake.certificates)"]
    return report


def _summary(snapshot: Any) -> dict[str, str]:
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def _lineage(table: StaticTable) -> list[Any]:
    """The head and its retained ancestors, oldest first."""
    by_id, chain = {s.snapshot_id: s for s in table.metadata.snapshots}, list[Any]()
    at = table.current_snapshot()
    while at is not None:
        chain.append(at)
        at = None if at.parent_snapshot_id is None else by_id.get(at.parent_snapshot_id)
    return chain[::-1]


def _check_chain(certified: list[tuple[Any, str]]) -> list[str]:
    findings = []
    for (_, before), (snapshot, text) in pairwise(certified):
        body, last = json.loads(text), json.loads(before)
        if body["parent"] != hashlib.sha256(before.encode()).hexdigest():
            findings.append(f"certificate of snapshot {snapshot.snapshot_id} does not follow the one before it")
        for bucket, entry in body["buckets"].items():
            old = last["buckets"].get(bucket)
            jumps = old is not None and entry != old and entry["range"][0] != old["range"][1]
            if jumps and body["generation"] == last["generation"]:
                findings.append(f"bucket {bucket}: {entry['range']} does not follow {old['range']}")
    return findings


def _rows(table: StaticTable, snapshot: Any, columns: list[str]) -> pa.Table:
    keys = [n for n in ("__bucket", "__offset") if n in table.schema().column_names]
    return table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=(*columns, *keys)).to_arrow()


def _check_rows(table: StaticTable, newest: Any, head: Any, report: dict[str, Any]) -> None:
    """Each offset once and committed; of a log all of them; of a keyed table as many rows as the snapshot says."""
    rows, summary = _rows(table, head, []), _summary(newest)
    report["rows"] = rows.num_rows
    text = summary.get(OFFSETS, "")
    if not text.startswith("{") or "__offset" not in rows.column_names:
        report["unchecked"].append("offsets: the snapshot names a file of them, or the table has no column of them")
        return
    committed = json.loads(text)["offsets"]
    is_log = not table.schema().identifier_field_ids and json.loads(summary.get(CERTIFICATE, "{}")).get("kind") != "pk"
    if set(committed) - {""}:
        report["unchecked"].append("offsets of a partitioned table")
    for number, stop in committed.get("", []):
        offsets = rows.filter(pc.field("__bucket") == number)["__offset"].to_pylist()
        counts = Counter(offsets)
        doubled = sorted(o for o, count in counts.items() if count > 1)
        stray = sorted(o for o in counts if o is None or not 0 <= o < stop)
        missing = sorted(set(range(stop)) - set(counts)) if is_log else []
        for what, these in (("doubled", doubled), ("not committed", stray), ("missing", missing)):
            if these:
                report["findings"].append(f"bucket {number}: {len(these)} offsets {what}: {these[:SHOWN]}")
    expected = summary.get(ROWS)
    if expected is not None and int(expected) != rows.num_rows:
        report["findings"].append(f"the table has {rows.num_rows} rows, its newest snapshot says {expected}")


def _check_values(table: StaticTable, certified: list[tuple[Any, str]], head: Any, report: dict[str, Any]) -> None:
    """Each round's rows, as of its own snapshot; and those of the head against them."""
    columns = json.loads(certified[-1][1])["columns"]
    if set(columns) - set(table.schema().column_names):
        report["unchecked"].append("values: columns were renamed or dropped since the certificates")
        return
    now = _rows(table, head, columns)
    hashes = dict(zip(_places(now), _hashes(now, columns), strict=True))
    proven, before = dict[tuple[int, int], int](), dict[str, Any]()
    for snapshot, text in certified:
        body = json.loads(text)
        if body["columns"] != columns:
            report["unchecked"].append(f"values of snapshot {snapshot.snapshot_id}: it had other columns")
            continue
        then = _rows(table, snapshot, columns)
        at = dict(zip(_places(then), _hashes(then, columns), strict=True))
        for bucket, entry in body["buckets"].items():
            if not bucket.isdigit():
                continue
            start, stop = entry["range"]
            added = {place: h for place, h in at.items() if place[0] == int(bucket) and start <= (place[1] or 0) < stop}
            proven.update(added)
            is_own = entry != before.get(bucket)
            if is_own and (len(added) != entry["rows"] or sum(added.values()) % SUM != int(entry["hash"], 16)):
                words = f"are not those that its round wrote ({len(added)} rows, {entry['rows']} certified)"
                report["findings"].append(f"bucket {bucket}: rows of snapshot {snapshot.snapshot_id} {words}")
        before = body["buckets"]
    altered = sorted(place for place, value in hashes.items() if place in proven and proven[place] != value)
    if altered:
        report["findings"].append(
            f"{len(altered)} rows were altered since their round, (bucket, offset): {altered[:SHOWN]}"
        )
    _check_sums(json.loads(certified[-1][1]), hashes, report)


def _check_sums(newest: dict[str, Any], hashes: dict[Any, int], report: dict[str, Any]) -> None:
    """Checks all rows of a log since the first certificate, with those whose snapshots have expired."""
    for bucket, entry in newest["buckets"].items() if newest["kind"] == "log" else ():
        if bucket.isdigit():
            held = [
                h for (b, o), h in hashes.items() if b == int(bucket) and entry["since"] <= (o or 0) < entry["range"][1]
            ]
            if len(held) != entry["of"] or sum(held) % SUM != int(entry["sum"], 16):
                words = f"{len(held)} rows from offset {entry['since']} on, which do not add up to the {entry['of']}"
                report["findings"].append(f"bucket {bucket} has {words} certified")


def _places(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows["__bucket"].to_pylist(), rows["__offset"].to_pylist(), strict=True))


def _hashes(rows: pa.Table, columns: list[str]) -> list[int]:
    texts = [_texts(rows[name].combine_chunks()) for name in (*columns, "__offset")]
    joined = (b":".join(p for t in row for p in (str(len(t)).encode(), t)) for row in zip(*texts, strict=True))
    return [int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big") for row in joined]


def _texts(column: pa.Array) -> list[bytes]:
    """Each value as bytes: numbers as text, floats as their 64 bits, times in microseconds or days, NULL as ~."""
    kind = column.type
    if pa.types.is_floating(kind):
        bits = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
        column = pc.if_else(pc.is_valid(column), pa.array(bits), pa.scalar(None, pa.int64()))
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_time(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind):
        column = column.cast(pa.int64() if pa.types.is_time(kind) else pa.int32())
    values = (column if "binary" in str(column.type) else column.cast(pa.string())).to_pylist()
    return [b"~" if v is None else v if isinstance(v, bytes) else v.encode() for v in values]


def main(arguments: list[str]) -> int:
    report = check(arguments[0], arguments[1])
    print(json.dumps(report, indent=2))
    return 1 if report["findings"] else 6 if report["unchecked"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
