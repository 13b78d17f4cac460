# SPDX-License-Identifier: Apache-2.0
"""Tables in which another engine deleted rows by deletion vectors are read as they are; no round writes to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import LakeSchemaBroken
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.spi import LakeFile
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine
from lakeward_testing.scripted_log import ScriptedLog

SUITE = LakeSuite()


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def files(lake: PaimonLakeStorage, log: ScriptedLog) -> list[LakeFile]:
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    return sorted(reader.files(head.snapshot_id), key=lambda f: (f.bucket, f.offsets))


def ids(lake: PaimonLakeStorage, log: ScriptedLog) -> list[int]:
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    return sorted(n for batch in reader.scan(head.snapshot_id, columns=["id"]) for n in batch.column("id").to_pylist())


def delete(lake: PaimonLakeStorage, log: ScriptedLog, at: int, *places: int) -> None:
    name = files(lake, log)[at].path.rpartition("/")[2]
    PaimonForeignEngine(lake.connection, log.table.path).delete_by_vector({name: places})


@pytest.mark.parametrize("keys", [{}, {"primary_key": ("id",)}], ids=["log", "pk"])
def test_rows_that_a_vector_names_are_no_more(lake: PaimonLakeStorage, keys: dict[str, Any]) -> None:
    log = SUITE.make_log(lake, **keys)
    write = log.upsert if keys else log.append
    for first in (0, 5):
        write(B0, *(row(n) for n in range(first, first + 5)))
        write(B1, row(100 + first))
        LakeRound.plan(lake, log).run()
    delete(lake, log, 1, 0, 3)
    assert ids(lake, log) == [0, 1, 2, 3, 4, 6, 7, 9, 100, 105]
    told = files(lake, log)
    assert [[d.record_count for d in f.deletes] for f in told] == [[], [2], [], []]
    assert told[1].is_reader_needed
    totals = lake.open_reader(log.table).totals()
    assert (totals.rows, totals.delete_files) == (10, 1)


def test_what_a_vector_hides_does_not_come_back_where_its_delete_is_gone(lake: PaimonLakeStorage) -> None:
    """Compactions of others put the delete of a key into a vector of the file that has the row."""
    log = SUITE.make_log(lake, primary_key=("id",))
    log.upsert(B0, *(row(n) for n in range(9)))
    LakeRound.plan(lake, log).run()
    LakeRewrite(lake=lake, table=log.table).run()
    delete(lake, log, 0, 4)
    assert files(lake, log)[0].is_reader_needed
    assert ids(lake, log) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_rounds_refuse_such_a_table_and_a_rewrite_takes_the_rows_out(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake)
    for n in (1, 2, 3):
        log.append(B0, row(n))
        LakeRound.plan(lake, log).run()
    delete(lake, log, 1, 0)
    log.append(B0, row(4))
    with pytest.raises(LakeSchemaBroken, match=r"deletion-vectors\.enabled: lake true, wanted false"):
        LakeRound.plan(lake, log).run()
    lake.catalog().reconcile_schema(log.table)
    LakeRewrite(lake=lake, table=log.table).run()
    (file,) = files(lake, log)
    assert (file.deletes, file.record_count) == ((), 2)
    assert ids(lake, log) == [1, 3]
