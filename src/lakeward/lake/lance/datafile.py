# SPDX-License-Identifier: Apache-2.0
"""A data file of ours: its name, and what it says of the rows in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from lance.file import LanceFileReader

from lakeward.model import OFFSET, Bucket, OffsetRange, Offsets, RoundId

PREFIX = "lakeward-"
FACTS_KEY = "lakeward"
"""In the metadata of a data file's own schema: Lance has no room for it beside a fragment."""

_KEPT = 100_000
_AT_ONCE = 16


@dataclass(frozen=True)
class FileFacts:
    """`bucket` None: rows of several. `since`: the version that its rows came with; 0 where others wrote them."""

    bucket: Bucket | None = None
    offsets: OffsetRange | None = None
    since: int = 0

    def to_text(self) -> str:
        assert self.bucket is not None
        assert self.offsets is not None
        return json.dumps([str(self.bucket), self.offsets.start, self.offsets.stop, self.since])

    @classmethod
    def parse(cls, text: str) -> FileFacts:
        bucket, start, stop, since = json.loads(text)
        return cls(Bucket.parse(bucket), OffsetRange(start, stop), since)


def round_prefix(round_id: RoundId) -> str:
    return f"{PREFIX}{round_id}-"


def is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def load_facts(paths: Sequence[str], storage_options: Mapping[str, str]) -> list[FileFacts | None]:
    """None: it does not say. Files never change: each is looked at once. Raises `OSError`, `ValueError`."""
    options = tuple(sorted(storage_options.items()))
    if len(paths) < _AT_ONCE:
        return [_load(path, options) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda path: _load(path, options), paths))


@lru_cache(_KEPT)
def _load(path: str, options: tuple[tuple[str, str], ...]) -> FileFacts | None:
    schema = LanceFileReader(path, storage_options=dict(options)).metadata().schema
    text = (schema.metadata or {}).get(FACTS_KEY.encode())
    return None if text is None else FileFacts.parse(text.decode())


def read_offsets(path: str, storage_options: Mapping[str, str]) -> Offsets:
    """Of every row, deleted ones too, in the file's order. Raises `OSError`, `ValueError`."""
    reader = LanceFileReader(path, storage_options=dict(storage_options), columns=[OFFSET])
    return np.asarray(reader.read_all().to_table().column(0).to_numpy(), np.int64)
