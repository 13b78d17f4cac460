# SPDX-License-Identifier: Apache-2.0
"""Files of lake tables, changed by a seeded hand, and what reads, rounds and upkeep make of them. A program of its own,
as it limits its memory and processor time: `python -m tests.process.hostilefiles FOLDER FIRST STOP FORMAT ...`.

Each call ends, with an answer or one of our errors, and no file of another table changes.
"""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.model import TableInfo, TablePath
from lakeward.spi import LakeStorage
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.unit.lake.test_allowedpaths import ids, open_lake

ROOM_BYTES = 768 << 20
"""Beside what the libraries take: the largest metadata file has 32 MB, and four times as much unpacked."""

CPU_S = 120
"""Of one seed, whose calls take two seconds of it."""

HANGS_S = 540


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


def put_something_else(chance: random.Random, file: Path, other: Path) -> None:
    """In place of a file."""
    kind = chance.choice(("pipe", "loop", "endless", "other", "folder", "hole"))
    if kind == "hole":
        os.truncate(file, 1 << 40)
        return
    file.unlink()
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            file.symlink_to({"loop": file, "endless": Path("/dev/zero"), "other": other}[kind])


def contents(folder: Path, without: str) -> dict[str, bytes]:
    names = [p for p in sorted(folder.rglob("*")) if not p.relative_to(folder).parts[0].startswith(without)]
    return {str(p.relative_to(folder)): p.read_bytes() for p in names if p.is_file()}


def filled(lake: LakeStorage, database: str, first: int) -> tuple[TableInfo, ScriptedLog]:
    table = replace(LakeSuite().table_info(), path=TablePath(database, "t"))
    lake.catalog().create(table)
    log = ScriptedLog(table)
    for number in range(first, first + 6, 3):
        for each in range(number, number + 3):
            log.append(B0, row(each))
        LakeRound.plan(lake, log).run()
    return table, log


def attempts(lake: LakeStorage, table: TableInfo, log: ScriptedLog) -> list[Callable[[], object]]:
    reader, upkeep, catalog = lake.open_reader(table), lake.open_maintenance(table), lake.catalog()
    log.append(B0, row(99))
    return [
        lambda: ids(lake, table),
        reader.load_base,
        reader.snapshots,
        reader.totals,
        lambda: [reader.files(s.snapshot_id) for s in reader.snapshots()],
        upkeep.references,
        lambda: catalog.validate(table),
        lambda: catalog.table_id(table.path),
        lambda: catalog.reconcile_schema(table, dry_run=True),
        LakeRound.plan(lake, log).run,
        lambda: upkeep.expire([s.snapshot_id for s in reader.snapshots()]),
        lambda: list(upkeep.list_files()),
        lambda: catalog.drop(table.path),
    ]


def attack(name: str, folder: Path, seed: int) -> Iterator[str]:
    """What should not have happened."""
    chance, warehouse = random.Random(seed), folder / "w"
    lake = open_lake(name, folder)
    table, log = filled(lake, "ann", 0)
    filled(lake, "ben", 10)
    before = contents(warehouse, "ann")
    files = [p for p in sorted(warehouse.glob("ann*/**/*")) if p.is_file()]
    others = [warehouse / name for name in before]
    for file in chance.sample(files, min(len(files), chance.randint(1, 3))):
        if chance.random() < 0.6:
            file.write_bytes(mutate(chance, file.read_bytes()))
        else:
            put_something_else(chance, file, chance.choice(others))
    fresh = open_lake(name, folder)
    for number in range(13):
        try:
            attempts(fresh, table, log)[number]()
        except LakewardError:
            continue
        except BaseException as error:  # noqa: BLE001 - a panic of a library in Rust is no Exception
            where = traceback.format_tb(error.__traceback__)[-1].strip().replace("\n", " ")
            yield f"{name}, seed {seed}, call {number}: {type(error).__name__}: {error} ({where})"
    if contents(warehouse, "ann") != before:
        yield f"{name}, seed {seed}: files of another table changed"


def resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(folder: Path, first: int, stop: int, formats: list[str]) -> int:
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    for name in formats:
        (folder / f"{name}-warm").mkdir()
        filled(open_lake(name, folder / f"{name}-warm"), "ann", 0)
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_S * (stop - first) * len(formats), resource.RLIM_INFINITY))
    most, faults = resident_bytes() + ROOM_BYTES, 0
    for name in formats:
        for seed in range(first, stop):
            place = folder / f"{name}-{seed}"
            place.mkdir()
            for fault in attack(name, place, seed):
                print(fault)
                faults += 1
            if resident_bytes() > most:
                print(f"{name}, seed {seed}: {resident_bytes() - most + ROOM_BYTES} bytes of memory")
                return 1
            shutil.rmtree(place)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
