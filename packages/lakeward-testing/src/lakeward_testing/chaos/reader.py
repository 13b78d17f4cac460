# SPDX-License-Identifier: Apache-2.0
"""A reader process: union reads and lake reads without end, each held against the producers' records.

`python -m lakeward_testing.chaos.reader URL LOG_TABLE PK_TABLE RECORDS FINDINGS`, until SIGTERM. One line of JSON per
read.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.client import Client, connect
from lakeward.errors import LakewardError
from lakeward.model import OffsetMap, StopSignal
from lakeward_testing.chaos.producer import KEY_STRIDE, partition_of, value_of
from lakeward_testing.chaos.record import Record, allowed_versions

SHOWN = 5
PAUSE_S = 0.2


class RecordFolder:
    """The producers' files: `log-N.jsonl` and `pk-N.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, kind: str) -> dict[int, Record]:
        return {int(p.stem.partition("-")[2]): Record.load(p) for p in sorted(self.folder.glob(f"{kind}-*.jsonl"))}


def check_log(rows: pa.Table, before: dict[int, Record], after: dict[int, Record], *, whole: bool = True) -> list[str]:
    """What is wrong with a read of the log table that began after `before` and ended before `after` was recorded.

    `whole` False: a lake read, which may lack newer rows."""
    counts = Counter(zip(rows.column("producer").to_pylist(), rows.column("row").to_pylist(), strict=True))
    wanted = {(p, r) for p, record in before.items() for r in record.acked_rows()} if whole else set()
    possible = {(p, r) for p, record in after.items() for r in record.tried_rows()}
    wrong = []
    for words, rows_ in (
        ("rows are there more than once", [a for a, n in counts.items() if n > 1]),
        ("acknowledged rows are missing", wanted - counts.keys()),
        ("rows were never written", counts.keys() - possible),
        ("rows have another value", _altered_log(rows)),
    ):
        wrong += [f"log: {len(rows_)} {words}: {sorted(rows_)[:SHOWN]}"] if rows_ else []
    return wrong


def _altered_log(rows: pa.Table) -> list[tuple[int, int]]:
    columns = (rows.column(n).to_pylist() for n in ("producer", "row", "value"))
    return [(p, r) for p, r, v in zip(*columns, strict=True) if v != value_of(p, r)]


def check_keys(rows: pa.Table, before: dict[int, Record], after: dict[int, Record], *, whole: bool = True) -> list[str]:
    """The same for the PK table: each key shows its newest acknowledged change, or one tried since."""
    shown = {r["id"]: r for r in rows.to_pylist()}
    wrong = []
    if len(shown) < rows.num_rows:
        twice = [k for k, n in Counter(rows.column("id").to_pylist()).items() if n > 1]
        wrong.append(f"pk: {len(twice)} keys are there more than once: {sorted(twice)[:SHOWN]}")
    odd: dict[int, str] = {}
    for producer, record in after.items():
        acked = set(before[producer].acked) if whole and producer in before else set()
        for key, changes in record.by_key().items():
            version = shown[key]["version"] if key in shown else None
            allowed = allowed_versions(changes, acked)
            if version not in allowed:
                odd[key] = f"shows {version}, may show {sorted(allowed, key=str)[:SHOWN]}"
    wrong += [f"pk: {len(odd)} keys show what they cannot: {dict(sorted(odd.items())[:SHOWN])}"] if odd else []
    altered = [
        k
        for k, r in shown.items()
        if r["value"] != value_of(k // KEY_STRIDE, k, r["version"]) or r["part"] != partition_of(k)
    ]
    return wrong + ([f"pk: {len(altered)} keys have another value: {sorted(altered)[:SHOWN]}"] if altered else [])


def check_offsets(rows: pa.Table, ends: OffsetMap) -> list[str]:
    """A log table's read holds per bucket exactly the offsets below its end: nothing of a round that is not whole."""
    numbers = rows.column("__bucket").to_numpy()
    offsets = rows.column("__offset").to_numpy()
    wrong = []
    for bucket, end in ends.items():
        held = np.sort(offsets[numbers == bucket.number])
        if len(held) != end or not np.array_equal(held, np.arange(end)):
            wrong.append(f"log: bucket {bucket} holds {len(held)} offsets, its snapshot says [0, {end})")
    return wrong


class Reader:
    def __init__(self, client: Client, log: str, pk: str, records: RecordFolder) -> None:
        self._client, self._log, self._pk, self._records = client, log, pk, records

    def read(self, turn: int) -> dict[str, Any]:
        """One read of each table, as a line for the lab. Errors of a hurt system are counted, what is wrong is told."""
        mode = "lake" if turn % 3 == 2 else "union"
        line: dict[str, Any] = {"mode": mode, "wrong": [], "error": None, "rows": 0}
        try:
            line["wrong"] = [*self._read_log(mode, line), *self._read_keys(mode, line)]
        except LakewardError as error:
            line["error"] = f"{error.code}: {error}"[:300]
        except Exception:  # noqa: BLE001 - whatever it is, the lab must hear of it
            line["wrong"] = [f"the read broke: {traceback.format_exc()[-1500:]}"]
        return line

    def _read_log(self, mode: str, line: dict[str, Any]) -> list[str]:
        before = self._records.load("log")
        result = self._client.read(self._log, mode=mode, system_columns=True)
        bound, rows = result.bound, result.to_table()
        line["rows"] += rows.num_rows
        ends = bound.lake_offsets if mode == "lake" else bound.ends
        wrong = check_log(rows, before, self._records.load("log"), whole=mode == "union")
        return [*wrong, *check_offsets(rows, ends)]

    def _read_keys(self, mode: str, line: dict[str, Any]) -> list[str]:
        before = self._records.load("pk")
        rows = self._client.read(self._pk, mode=mode).to_table()
        line["rows"] += rows.num_rows
        return check_keys(rows, before, self._records.load("pk"), whole=mode == "union")


def main(arguments: Sequence[str]) -> None:
    url, log, pk, records, findings = arguments
    stopping = StopSignal(signal.SIGTERM)
    turn = 0
    with connect(url) as client, Path(findings).open("a", encoding="utf-8") as out:
        reader = Reader(client, log, pk, RecordFolder(Path(records)))
        while not stopping.wait(PAUSE_S):
            out.write(json.dumps(reader.read(turn)) + "\n")
            out.flush()
            turn += 1


if __name__ == "__main__":
    main(sys.argv[1:])
