# SPDX-License-Identifier: Apache-2.0
"""Files of a lake table, changed by a seeded hand: whatever reads and upkeep make of them, they end, and nothing
outside of the table is touched. Replay one with `attack(format, folder, seed)`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeward.errors import LakewardError
from lakeward.spi.lake.storage import LakeStorage
from tests.unit.lake.test_allowedpaths import FORMATS, filled, ids, open_lake


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def mutate(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    kind = chance.choice(("flip", "cut", "repeat", "digits", "dots"))
    if kind == "flip" or not changed:
        for _ in range(chance.randint(1, 8)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
    elif kind == "cut":
        del changed[chance.randrange(len(changed)) :]
    elif kind == "repeat":
        at = chance.randrange(len(changed))
        changed[at:at] = changed[at : at + chance.randint(1, 200)] * chance.randint(1, 50)
    elif kind == "digits":
        digits = [n for n, c in enumerate(changed) if chr(c).isdigit()]
        for at in chance.sample(digits, min(len(digits), 4)):
            changed[at] = ord(chance.choice("0123456789-"))
    else:
        slashes = [n for n, c in enumerate(changed) if c == ord("/")]
        if slashes:
            at = chance.choice(slashes)
            changed[at : at + 4] = b"/../"
    return bytes(changed)


def attempts(lake: LakeStorage, table: object) -> list[Callable[[], object]]:
    reader, upkeep = lake.open_reader(table), lake.open_maintenance(table)  # type: ignore[arg-type]
    return [
        lambda: ids(lake, table),  # type: ignore[arg-type]
        reader.load_base,
        reader.snapshots,
        upkeep.references,
        lambda: upkeep.expire([s.snapshot_id for s in reader.snapshots()]),
        lambda: list(upkeep.list_files()),
    ]


def attack(name: str, folder: Path, seed: int) -> list[str]:
    """The kinds of errors that were not ours."""
    chance = random.Random(seed)
    lake = open_lake(name, folder)
    table = filled(lake, "ann", 0)
    filled(lake, "ben", 10)
    others = {p: d for p, d in contents(folder / "w").items() if not p.startswith("ann")}
    files = [p for p in sorted((folder / "w").glob("ann*/**/*")) if p.is_file()]
    for file in chance.sample(files, min(len(files), chance.randint(1, 3))):
        file.write_bytes(mutate(chance, file.read_bytes()))
    untyped = []
    fresh = open_lake(name, folder)
    for attempt in attempts(fresh, table):
        try:
            attempt()
        except LakewardError:
            continue
        except BaseException as error:  # a panic of a library in Rust is no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            untyped.append(type(error).__name__)
    after = {p: d for p, d in contents(folder / "w").items() if not p.startswith("ann")}
    assert after == others, f"{name}, seed {seed}: files of another table changed"
    return untyped


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_of_another_table_is_touched(name: str, tmp_path: Path) -> None:
    for seed in range(2):
        folder = tmp_path / str(seed)
        os.makedirs(folder)
        attack(name, folder, seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("start", range(0, 60, 20))
def test_nothing_of_another_table_is_touched_by_many(name: str, start: int, tmp_path: Path) -> None:
    for seed in range(start, start + 20):
        folder = tmp_path / str(seed)
        os.makedirs(folder)
        attack(name, folder, seed)
