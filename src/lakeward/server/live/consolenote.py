# SPDX-License-Identifier: Apache-2.0
"""The note of a cluster's console on its `live` warehouse, for `lakeward doctor --fluss` on the same machine: while a
console runs, the record of files itself is locked."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from lakeward.errors import InvalidRequest
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.facts import LiveFacts

_FILE = "live.json"
SILENT_MS = 5 * 60_000
"""Five sweeps: the console that wrote the note is not running, or cannot go on."""


@dataclass(frozen=True, kw_only=True)
class ConsoleNote:
    """`answers`: those whose files are in the lakes. `keep_ms`: the console's `live.keep`."""

    at_ms: int
    keep_ms: int
    answers: int
    facts: LiveFacts

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self.at_ms > SILENT_MS


def console_folder(data: Path, bootstrap: str) -> Path:
    """Below `server.data-dir`, one for each cluster."""
    return data / f"console-{re.sub('[^A-Za-z0-9.-]+', '_', bootstrap)}"


def save_note(folder: Path, note: ConsoleNote) -> None:
    """Replaced in one step. Raises `OSError`."""
    partial = folder / f"{_FILE}.partial"
    partial.write_text(json.dumps(encode(note)))
    os.replace(partial, folder / _FILE)


def load_note(folder: Path) -> ConsoleNote | None:
    """None: no console of this cluster has used the folder, or its note cannot be read."""
    try:
        return decode(ConsoleNote, json.loads((folder / _FILE).read_text()))
    except (OSError, ValueError, InvalidRequest):
        return None
