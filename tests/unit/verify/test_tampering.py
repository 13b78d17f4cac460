# SPDX-License-Identifier: Apache-2.0
"""Real Iceberg tables that somebody tampers with: verify names each deed, with offsets and files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from lakeward.lake.iceberg.plugin import load
from lakeward.lake.iceberg.scan.snapshotfiles import plan_files
from lakeward.model import Bucket, LedgerKind, SnapshotId, TablePath
from lakeward.spi import TAG
from lakeward.verify import Certificate, verify_table
from lakeward.verify.addresses import AddressCount
from lakeward.verify.bucket import check_bucket
from lakeward.verify.certificate import BucketReport, CertificateVerdict, Finding, FindingKind
from lakeward.verify.ledger import expected_ranges
from lakeward.verify.table import Checked
from lakeward.verify.task import BucketTask
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.iceberg.folder import folder_options
from tests.kit.inprocess import InProcessLakeward
from tests.unit.verify.test_ledger import B, entry

LOG, PK = "db.events", "db.state"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Yard:
    """A Lakeward over an Iceberg table on local disk, with a log table and a PK table in two partitions, and someone
    else at the lake.
    """

    def __init__(self, folder: Path) -> None:
        lake = load(folder_options(folder))
        self.lake = lake
        self.world = InProcessLakeward(folder / "server", lake)

    def fill(self, path: str) -> None:
        """The table, and two rounds of it."""
        if path == LOG:
            self.world.create(LOG, "id bigint not null, v string")
        else:
            self.world.create(
                PK, "p string not null, id bigint not null, v string", primary_key="p,id", partition_by="p"
            )
        self.write(path, 0)
        self.write(path, 1)

    def write(self, path: str, turn: int) -> None:
        """Ten rows more in the log, or: of the keys one half is new, one half changed, one key goes."""
        if path == LOG:
            self.world.append(LOG, [{"id": i, "v": f"v{i}"} for i in range(10 * turn, 10 * turn + 10)])
        else:
            for p in ("a", "b"):
                self.world.upsert(PK, [{"p": p, "id": i, "v": f"{turn}-{i}"} for i in range(5 * turn, 5 * turn + 10)])
                self.world.delete(PK, [{"p": p, "id": 5 * turn}])
        self.world.tier(path)

    def verify(self, path: str, *, deep: bool = True, **how: Any) -> Certificate:
        return verify_table(
            self.world.plugin,
            TablePath.parse(path),
            deep=deep,
            clock=self.world.clock,
            open_storage=lambda _plan: self.lake,
            **how,
        )

    def insert(self, path: str, rows: Sequence[dict[str, Any]]) -> None:
        """Another engine's INSERT, which knows nothing of our columns' meaning."""
        engine = self.foreign(path)
        engine.append(pa.Table.from_pylist(list(rows), schema=engine.load().schema().as_arrow()))

    def foreign(self, path: str) -> IcebergForeignEngine:
        return IcebergForeignEngine(self.lake.connection.catalog, TablePath.parse(path))

    def files(self, path: str) -> list[DataFile]:
        return [task.file for task in self.foreign(path).load().scan().plan_files()]

    def replace_file(self, path: str, change: Any) -> str:
        """Another engine puts one changed copy of the first data file in its place, in a snapshot of its own."""
        engine = self.foreign(path)
        table, old = engine.load(), self.files(path)[0]
        new = _rewritten(table, old, change)
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            overwrite.delete_data_file(old)
            overwrite.append_data_file(new)
        return new.file_path


def _rewritten(table: Table, old: DataFile, change: Any) -> DataFile:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    rows = pq.read_table(old.file_path.removeprefix("file://"))
    fresh = change(rows).cast(table.schema().as_arrow())
    (made,) = _dataframe_to_data_files(table.metadata, fresh, table.io)
    return made


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.world.close()
    made.lake.connection.close()


@pytest.fixture
def logs(empty: Yard) -> Yard:
    empty.fill(LOG)
    return empty


@pytest.fixture
def keys(empty: Yard) -> Yard:
    empty.fill(PK)
    return empty


def only(certificate: Certificate, kind: FindingKind) -> Finding:
    found = [f for f in certificate.all_findings if f.kind is kind]
    assert len(found) == 1, certificate.all_findings
    assert not certificate.holds
    return found[0]


@pytest.mark.parametrize("path", [LOG, PK])
@pytest.mark.parametrize("deep", [False, True])
def test_untouched_tables_hold(empty: Yard, path: str, deep: bool) -> None:
    empty.fill(path)
    certificate = empty.verify(path, deep=deep)
    assert certificate.holds, certificate.all_findings
    assert certificate.beyond == ()
    assert certificate.rows == (20 if path == LOG else 26)
    assert sum(b.compared for b in certificate.buckets) == (certificate.rows if deep else 0)
    assert (certificate.orphan_files, certificate.notes) == (0, ())


@pytest.mark.parametrize("path", [LOG, PK])
def test_rounds_go_on_beside_a_verification(empty: Yard, path: str) -> None:
    """In the middle of it a round lands; the certificate is of the snapshot that its read lease keeps."""
    empty.fill(path)
    before = empty.foreign(path).load().current_snapshot()
    info = empty.world.store.load_table(TablePath.parse(path))

    def run(tasks: Sequence[BucketTask]) -> list[BucketReport]:
        empty.write(path, 2)
        hot, lake = empty.world.plugin.store(), empty.lake.open_reader(info)
        return [check_bucket(task, hot, lake) for task in tasks]

    certificate = verify_table(
        empty.world.plugin,
        info.path,
        deep=True,
        run=run,
        clock=empty.world.clock,
        open_storage=lambda _plan: empty.lake,
    )
    after = empty.foreign(path).load().current_snapshot()
    assert before is not None
    assert after is not None
    assert after.snapshot_id != before.snapshot_id == int(certificate.snapshot_id or 0)
    assert certificate.holds, certificate.all_findings
    assert sum(b.compared for b in certificate.buckets) == certificate.rows


def test_rows_that_changed_since_are_compared_by_their_before_images(keys: Yard) -> None:
    keys.world.upsert(PK, [{"p": "a", "id": i, "v": "later"} for i in range(20)])
    keys.world.delete(PK, [{"p": "b", "id": 8}])
    certificate = keys.verify(PK)
    assert certificate.holds
    assert certificate.beyond == ()
    assert sum(b.compared for b in certificate.buckets) == 26


def test_without_before_images_what_cannot_be_compared_is_said(empty: Yard) -> None:
    empty.world.create(
        "db.wal", "id bigint not null, v string", primary_key="id", buckets=1, **{"table.changelog.image": "wal"}
    )
    empty.world.upsert("db.wal", [{"id": i, "v": "one"} for i in range(4)])
    empty.world.tier("db.wal")
    empty.world.upsert("db.wal", [{"id": 2, "v": "two"}])
    certificate = empty.verify("db.wal")
    assert (certificate.verdict, certificate.is_failure) == (CertificateVerdict.PARTLY_CHECKED, False)
    assert "values of 1 rows replaced since" in certificate.beyond[0]
    assert sum(b.compared for b in certificate.buckets) == 3


@pytest.mark.parametrize("path", [LOG, PK])
def test_a_dropped_row_is_missing(empty: Yard, path: str) -> None:
    """The row goes from its file; the file's name and everything else stay right."""
    empty.fill(path)
    dropped: list[int] = []

    def drop(rows: pa.Table) -> pa.Table:
        dropped.append(rows.column("__offset")[-1].as_py())
        return rows.slice(0, rows.num_rows - 1)

    empty.replace_file(path, drop)
    finding = only(empty.verify(path, deep=False), FindingKind.MISSING)
    assert finding.count == 1
    assert finding.offsets == tuple(dropped)


def test_a_copy_of_a_file_doubles_its_rows(logs: Yard) -> None:
    engine = logs.foreign(LOG)
    table = engine.load()
    copied = _rewritten(table, logs.files(LOG)[0], lambda rows: rows)
    offsets = pq.read_table(copied.file_path.removeprefix("file://")).column("__offset").to_pylist()
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(copied)
    finding = only(logs.verify(LOG, deep=False), FindingKind.DUPLICATE)
    assert finding.count == 10
    assert finding.offsets == tuple(offsets)
    assert copied.file_path in finding.files or copied.file_path.removeprefix("file://") in [
        f.removeprefix("file://") for f in finding.files
    ]
    assert len(finding.files) == 2


def test_a_row_that_was_replaced_and_comes_back_is_a_stray(keys: Yard) -> None:
    """A copy of a PK file without its deletes brings rows back that later rounds replaced."""
    engine = keys.foreign(PK)
    old = next(t for t in engine.load().scan().plan_files() if t.delete_files)
    with engine.load().transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(_rewritten(engine.load(), old.file, lambda rows: rows))
    kinds = {f.kind for f in keys.verify(PK, deep=False).all_findings}
    assert FindingKind.STRAY in kinds


@pytest.mark.parametrize("path", [LOG, PK])
def test_an_edited_value_is_altered(empty: Yard, path: str) -> None:
    empty.fill(path)
    edited: list[int] = []

    def edit(rows: pa.Table) -> pa.Table:
        values = rows.column("v").to_pylist()
        values[-1] += "!"
        edited.append(rows.column("__offset")[-1].as_py())
        return rows.set_column(rows.schema.get_field_index("v"), "v", pa.array(values))

    file = empty.replace_file(path, edit)
    assert empty.verify(path, deep=False).holds, "values are compared in depth only"
    finding = only(empty.verify(path, deep=True), FindingKind.ALTERED)
    assert finding.offsets == tuple(edited)
    assert any(f.endswith(file.rpartition("/")[2]) for f in finding.files)


def test_a_removed_snapshot_is_named_and_the_rows_are_checked_all_the_same(logs: Yard) -> None:
    table = logs.foreign(LOG).load()
    first = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    certificate = logs.verify(LOG)
    assert certificate.holds
    assert certificate.rows == 20
    assert str(first) in certificate.notes[0]


def test_a_chain_that_others_cut_hides_nothing_from_readers(logs: Yard) -> None:
    """Two rewrites by another engine, then its expiry: no ancestor of main is ours, and the tag says how far the rows
    go.
    """
    engine = logs.foreign(LOG)
    engine.rewrite()
    engine.rewrite(seed=2)
    engine.expire()
    logs.world.append(LOG, [{"id": 20, "v": "v20"}])
    assert sorted(logs.world.read(LOG).to_table().column("id").to_pylist()) == list(range(21))
    certificate = logs.verify(LOG)
    assert certificate.holds, certificate.all_findings


def test_our_newest_snapshot_removed_from_under_main_is_a_mismatch(logs: Yard) -> None:
    """The tag goes first, then every snapshot of ours: nothing is left that says how far the lake is."""
    engine = logs.foreign(LOG)
    engine.touch()
    engine.load().manage_snapshots().remove_tag(TAG).commit()
    engine.expire()
    certificate = logs.verify(LOG)
    finding = only(certificate, FindingKind.LEDGER_MISMATCH)
    assert "the ledger ends at 20, the lake at 0" in finding.words
    assert certificate.rows == 20


def test_a_rollback_is_named_with_the_rows_that_it_took(logs: Yard) -> None:
    engine = logs.foreign(LOG)
    engine.roll_back(SnapshotId(str(engine.load().metadata.snapshots[0].snapshot_id)))
    certificate = logs.verify(LOG)
    assert only(certificate, FindingKind.ROLLED_BACK).words.startswith("table db.events: someone moved main")
    assert only(certificate, FindingKind.MISSING).offsets == tuple(range(10, 20))
    assert only(certificate, FindingKind.LEDGER_MISMATCH).offsets == (10,)


def test_a_file_that_is_gone_is_unreadable(logs: Yard) -> None:
    path = logs.files(LOG)[0].file_path.removeprefix("file://")
    Path(path).unlink()
    finding = only(logs.verify(LOG), FindingKind.UNREADABLE)
    assert finding.bucket == Bucket("", 0)
    assert path.rpartition("/")[2] in finding.words


def test_a_row_moved_to_another_partition_is_missing_in_one_and_stray_in_the_other(keys: Yard) -> None:
    def move(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("p")
        return rows.set_column(at, "p", pa.array(["b" if p == "a" else "a" for p in rows.column("p").to_pylist()]))

    keys.replace_file(PK, move)
    kinds = {(f.kind, f.bucket.partition) for f in keys.verify(PK, deep=False).all_findings if f.bucket is not None}
    assert len({p for k, p in kinds if k is FindingKind.MISSING}) == 1
    assert {p for k, p in kinds if k in (FindingKind.DUPLICATE, FindingKind.STRAY)}


@pytest.mark.parametrize("deep", [False, True])
def test_foreign_rows_in_a_bucket_without_a_log_are_strays(keys: Yard, deep: bool) -> None:
    keys.insert(PK, [{"p": "z", "id": 1, "v": "x", "__bucket": 0, "__offset": 5, "__timestamp": NOW}])
    finding = only(keys.verify(PK, deep=deep), FindingKind.STRAY)
    assert (finding.bucket, finding.count, finding.offsets) == (Bucket("z", 0), 1, (5,))


def test_files_that_do_not_say_their_bucket_are_looked_through(empty: Yard) -> None:
    """Another engine gave the table a spec of its own and wrote everything anew."""
    empty.fill(PK)
    with empty.foreign(PK).load().update_spec() as spec:
        for field in empty.foreign(PK).load().spec().fields:
            spec.remove_field(field.name)
    empty.foreign(PK).rewrite()
    certificate = empty.verify(PK)
    assert certificate.holds, certificate.all_findings
    assert sum(b.compared for b in certificate.buckets) == certificate.rows > 20
    empty.insert(PK, [{"p": "z", "id": 1, "v": "x", "__bucket": 7, "__offset": 5, "__timestamp": NOW}])
    finding = only(empty.verify(PK), FindingKind.STRAY)
    assert (finding.bucket, finding.count, len(finding.files)) == (None, 1, 2)


@pytest.mark.parametrize("path", [LOG, PK])
def test_a_sample_counts_every_row_and_compares_some(empty: Yard, path: str) -> None:
    empty.fill(path)
    whole, seen = empty.verify(path), set()
    for seed in range(12):
        part = empty.verify(path, sample=0.3, seed=seed)
        assert part.holds
        assert part.rows == whole.rows
        compared = sum(b.compared for b in part.buckets)
        assert 0 < compared < whole.rows
        seen.add(tuple(b.compared for b in part.buckets))
        assert "sample" in part.notes[-1]
    empty.replace_file(path, lambda rows: _with_column(rows, "v", ["altered"] * rows.num_rows))
    assert not any(empty.verify(path, sample=0.3, seed=s).totals["gaps"] for s in range(3))
    assert any(not empty.verify(path, sample=0.3, seed=s).holds for s in range(12))


def test_progress_is_told_bucket_by_bucket(keys: Yard) -> None:
    told: list[Checked] = []
    certificate = keys.verify(PK, progress=told.append)
    assert [(c.buckets, c.of) for c in told] == [(1, 2), (2, 2)]
    assert told[-1].rows == certificate.rows


def test_files_are_planned_once_for_all_buckets(keys: Yard) -> None:
    """With one plan for each bucket a check is quadratic: 14,568 files in 45 buckets took 8 minutes."""
    calls = 0

    def see(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is plan_files.__code__

    sys.setprofile(see)
    try:
        certificate = keys.verify(PK)
    finally:
        sys.setprofile(None)
    assert (certificate.holds, len(certificate.buckets), calls) == (True, 2, 1)


def _with_column(rows: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))


def test_a_restored_data_folder_leaves_values_that_cannot_be_compared_and_nothing_else(
    empty: Yard, tmp_path: Path
) -> None:
    """The log goes on above what the lake has: offsets are not used twice, and the lake has every row once."""
    empty.world.create(LOG, "id bigint not null, v string")
    empty.write(LOG, 0)
    empty.world.close()
    shutil.copytree(tmp_path / "server" / "hot", tmp_path / "backup")
    empty.world.restart()
    empty.world.coordinator.lakes.read_unseen()
    empty.write(LOG, 1)
    empty.world.close()
    shutil.rmtree(tmp_path / "server" / "hot")
    shutil.copytree(tmp_path / "backup", tmp_path / "server" / "hot")
    empty.world.restart()
    empty.world.coordinator.lakes.read_unseen()
    empty.write(LOG, 2)
    certificate = empty.verify(LOG)
    assert certificate.holds, certificate.all_findings
    assert (certificate.rows, sum(b.compared for b in certificate.buckets)) == (30, 20)


def test_a_gap_is_missing_unless_it_is_recorded() -> None:
    count = AddressCount(12)
    count.see(np.array([0, 1, 2, 3, 8, 9, 10, 11], np.int64))
    entries = [entry(0, 4), entry(4, 8, kind=LedgerKind.GAP), entry(8, 12)]
    assert count.check_ranges(B, expected_ranges(entries, 12)) == []
    (missing,) = count.check_ranges(B, expected_ranges([entry(0, 12)], 12))
    assert (missing.kind, missing.offsets) == (FindingKind.MISSING, (4, 5, 6, 7))


def test_a_lake_ahead_of_the_ledger_is_a_note(logs: Yard) -> None:
    logs.world.append(LOG, [{"id": 99, "v": "x"}])
    with Faults() as faults:
        faults.arm("round.before-coordinator-commit")
        handed = _handed(logs)
        logs.world.run(handed)
    certificate = logs.verify(LOG)
    assert certificate.holds, certificate.all_findings
    assert certificate.rows == 21
    assert "the lake is ahead of the ledger by [20, 21)" in certificate.notes[0]


def test_files_of_a_round_that_never_committed_are_orphans(logs: Yard) -> None:
    logs.world.append(LOG, [{"id": 99, "v": "x"}])
    with Faults() as faults:
        faults.arm("round.written")
        logs.world.run(_handed(logs))
    certificate = logs.verify(LOG)
    assert certificate.holds
    assert certificate.orphan_files == 1
    assert certificate.orphan_bytes > 100


def test_a_table_without_a_lake_says_so(empty: Yard) -> None:
    empty.world.create("db.hot", "id bigint", buckets=1, **{"table.datalake.enabled": "false"})
    certificate = empty.verify("db.hot")
    assert (certificate.verdict, certificate.is_failure) == (CertificateVerdict.NOT_CHECKED, False)
    assert certificate.beyond == ("the lake is not enabled on this table",)


def test_a_table_that_was_never_tiered_holds(empty: Yard) -> None:
    empty.world.create("db.fresh", "id bigint")
    empty.world.append("db.fresh", [{"id": 1}])
    certificate = empty.verify("db.fresh")
    assert certificate.holds
    assert certificate.snapshot_id is None


def _handed(yard: Yard) -> Any:
    yard.world.coordinator.ask_now(TablePath.parse(LOG))
    handed = yard.world.take(LOG)
    assert handed is not None
    return handed
