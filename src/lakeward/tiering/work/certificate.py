# SPDX-License-Identifier: Apache-2.0
"""The certificate of a round: what it added to each bucket, as order-free sums of row hashes, chained to the last one.

It is a property of the round's snapshot, so that the lake alone can be checked. `verify/offline.py` checks it, and
spells a row in the same way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from lakeward.changelog.rowsum import SUM
from lakeward.config.options.lake import TABLE_DATALAKE_CERTIFICATES
from lakeward.model import TableInfo
from lakeward.spi import LakeSnapshot
from lakeward.tiering.work.outcome import WriteOutcome

CERTIFICATE_KEY = "lakeward.certificate"


def is_certified(table: TableInfo) -> bool:
    """Opt-in, since it adds a property to snapshots and costs about 2 µs of processor time a row. A lake table without
    system columns has no offsets to check by."""
    text = table.descriptor.properties.get(TABLE_DATALAKE_CERTIFICATES.key, "false")
    return not table.descriptor.is_clean and text.strip().lower() == "true"


def plan_certificate(
    outcomes: Iterable[WriteOutcome], last: Mapping[str, Any] | None, *, is_log: bool, generation: int
) -> str:
    """The text of a round's certificate. `last`: the newest certificate, with its text's hash as `sha256`. Of a log
    `since`, `of` and `sum` go over all certified rounds: all rows of the bucket from that offset on. A bucket that was
    compared with the lake, by a resync, is left out: its certificates begin again with the next round."""
    buckets: dict[str, dict[str, Any]] = {}
    before = {} if last is None or last.get("generation") != generation else last.get("buckets", {})
    names: set[str] = set()
    compared: set[str] = set()
    for outcome in outcomes:
        sums, key = outcome.sums, str(outcome.split.bucket)
        if sums is None:
            compared.add(key)
            continue
        entry = buckets.setdefault(key, {"range": [outcome.split.start, 0], "rows": 0, "hash": 0})
        entry["range"][1] = outcome.stop
        entry["rows"] += sums.rows
        entry["hash"] = (entry["hash"] + sums.total) % SUM
        names |= set(sums.names)
    for key, entry in buckets.items():
        old = before.get(key)
        if old is None or not is_log or old["range"][1] != entry["range"][0] or not _same(last, names):
            old = {"since": entry["range"][0], "of": 0, "sum": "0"}
        entry["since"], entry["of"] = old["since"], old["of"] + entry["rows"]
        entry["sum"] = f"{(int(old['sum'], 16) + entry['hash']) % SUM:016x}"
        entry["hash"] = f"{entry['hash']:016x}"
    body = {
        "v": 1,
        "kind": "log" if is_log else "pk",
        "generation": generation,
        "columns": sorted(names) or (last or {}).get("columns", []),
        "parent": None if last is None else last["sha256"],
        "buckets": {key: entry for key, entry in {**before, **buckets}.items() if key not in compared},
    }
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def _same(last: Mapping[str, Any] | None, names: set[str]) -> bool:
    """After a change of columns the sums begin again."""
    return last is not None and (not names or last.get("columns") == sorted(names))


def find_last(snapshots: Iterable[LakeSnapshot]) -> dict[str, Any] | None:
    """The newest certificate of these, oldest first. A rewrite's snapshot has none, and keeps what rows there are."""
    for snapshot in reversed(list(snapshots)):
        text = snapshot.summary.get(CERTIFICATE_KEY)
        if text is not None:
            return {**json.loads(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return None
