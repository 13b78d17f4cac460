# SPDX-License-Identifier: Apache-2.0
"""Plans: which manifests are merged, which snapshots may go."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from lakeward.lake.core.log import plan_expiry
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.manifests import live_count, plan_merges
from lakeward.lake.iceberg.meta.summary import Reconciled, walk
from lakeward_testing.lakes.suite import LakeSuite


def manifest(name: str, files: int, content: ManifestContent = ManifestContent.DATA, spec: int = 0) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=name,
        manifest_length=1,
        partition_spec_id=spec,
        content=content,
        added_files_count=files,
        existing_files_count=0,
    )


def test_manifests_of_one_kind_and_size_are_merged_when_there_are_enough() -> None:
    small = [manifest(f"s{i}", 1) for i in range(8)]
    deletes = [manifest(f"d{i}", 1, ManifestContent.DELETES) for i in range(7)]
    other = [manifest("o", 1, spec=1), manifest("large", 9)]
    (group,) = plan_merges([*small, *deletes, *other])
    assert {m.manifest_path for m in group} == {m.manifest_path for m in small}


def test_the_list_stays_short_and_entries_are_seldom_rewritten() -> None:
    manifests: list[ManifestFile] = []
    rewritten, longest = 0, 0
    for number in range(2_000):
        for group in plan_merges(manifests):
            entries = sum(map(live_count, group))
            rewritten += entries
            manifests = [m for m in manifests if m not in group] + [manifest(f"m{number}", entries)]
        manifests.append(manifest(f"n{number}", 1))
        longest = max(longest, len(manifests))
    assert longest <= 8 * 4
    assert rewritten <= 2_000 * 4


def table(ages: list[int], **refs: int) -> TableMetadata:
    """Snapshots 1, 2, ... in a chain, each so many ms old at 1,000,000; `refs` points tags and branches at them."""
    metadata = new_table_metadata(
        Schema(NestedField(1, "n", LongType())),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        "file:///t",
        {"history.expire.max-snapshot-age-ms": "100"},
    )
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": i,
                "parent-snapshot-id": i - 1 or None,
                "sequence-number": i,
                "timestamp-ms": 1_000_000 - age,
                "manifest-list": f"file:///{i}",
            }
        )
        for i, age in enumerate(ages, 1)
    ]
    made = {
        name: SnapshotRef.model_validate(
            {"snapshot-id": at, "type": "branch" if name.startswith(("main", "branch")) else "tag"}
        )
        for name, at in {"main": len(ages), **refs}.items()
    }
    return metadata.model_copy(
        update={"snapshots": snapshots, "refs": made, "current_snapshot_id": made["main"].snapshot_id}
    )


def expired(metadata: TableMetadata) -> list[int]:
    connection = IcebergConnection({})
    log = IcebergSnapshotLog(connection, LakeSuite().table_info())
    catalog = NoopCatalog("none")
    ground = log.ground(Table(("db", "t"), metadata, "file:///t", PyArrowFileIO(), catalog))
    return [int(s.snapshot_id) for s in plan_expiry(log, ground, 1_000_000)]


@pytest.mark.parametrize(
    ("refs", "gone"),
    [
        ({}, [1, 2]),  # the third is old, but was the table until 50 ago
        ({"lakeward": 6}, [1, 2]),
        ({"lakeward": 2}, [1]),  # nothing between main and our tag: a cut chain would look like a rollback
        ({"kept": 2}, [1]),
        ({"branch": 3}, []),  # another branch keeps its history
        ({"main": 4, "lakeward": 4}, [1, 2, 3, 5, 6]),  # rolled back: what no reference reaches goes by age too
    ],
)
def test_what_may_expire(refs: dict[str, int], gone: list[int]) -> None:
    ages = [500, 400, 300, 250, 200, 150] if refs.get("main") else [500, 400, 300, 50, 20, 10]
    assert expired(table(ages, **refs)) == gone


def test_so_many_are_kept_whatever_their_age() -> None:
    metadata = table([500, 400, 300])
    assert expired(metadata) == [1, 2]
    kept = metadata.model_copy(
        update={"properties": {**metadata.properties, "history.expire.min-snapshots-to-keep": "2"}}
    )
    assert expired(kept) == [1]


def test_a_chain_that_was_cut_says_so() -> None:
    metadata = table([3, 2, 1])
    assert not walk(metadata).is_cut
    java = metadata.model_copy(update={"snapshots": metadata.snapshots[1:]})  # the parent's id is left
    assert walk(java).is_cut
    python = java.model_copy(
        update={"snapshots": [java.snapshots[0].model_copy(update={"parent_snapshot_id": None}), java.snapshots[1]]}
    )
    assert walk(python).is_cut


def with_summary(number: int, operation: str, **summary: str) -> Snapshot:
    facts = {k.replace("_", "-"): v for k, v in summary.items()}
    body = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": 1, "manifest-list": "file:///m"}
    return Snapshot.model_validate({**body, "summary": Summary(Operation(operation), **facts)})


@pytest.mark.parametrize(
    ("foreign", "removed"),
    [
        ([], 4),
        ([with_summary(2, "replace", deleted_records="9", added_records="3")], 4),
        ([with_summary(2, "append", added_records="3")], 4),
        (
            [
                with_summary(2, "overwrite", deleted_records="9", added_records="7"),
                with_summary(3, "delete", added_position_deletes="5"),
            ],
            11,
        ),
        ([with_summary(2, "delete", added_equality_deletes="1")], None),
    ],
)
def test_how_many_rows_others_removed(foreign: list[Snapshot], removed: int | None) -> None:
    ours = with_summary(1, "append", **{"lakeward.foreign-removed": "4"})
    assert Reconciled(ours, tuple(foreign)).foreign_removed() == removed
    uncounted = with_summary(1, "append", **{"lakeward.foreign-removed": "uncounted"})
    assert Reconciled(uncounted, tuple(foreign)).foreign_removed() is None
