# SPDX-License-Identifier: Apache-2.0
"""What other engines may do to a Lance table, as tests need it: commit, compact, insert, clean up, restore. All through
the library, which takes no notice of us."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from lakeward.lake.lance.table import LanceTable
from lakeward.model import BUCKET, OFFSET, SnapshotId


class LanceForeignEngine:
    """Commits carry no keys of ours."""

    def __init__(self, table: LanceTable) -> None:
        self._table = table

    def open(self, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(self._table.root, version=version, storage_options=self._table.storage_options)

    def touch(self) -> None:
        dataset = self.open()
        self._commit(dataset, lance.LanceOperation.Append([]))

    def rewrite(self) -> None:
        """Live rows of each bucket into one fragment beside ours, in descending offset order; deletions are gone."""
        dataset = self.open()
        rows, fragments = dataset.to_table(), [f.metadata for f in dataset.get_fragments()]
        new: list[Any] = []
        keys = self.partition_keys(dataset)
        groups = rows.group_by([*keys, BUCKET]).aggregate([]).to_pylist() if rows.num_rows else []
        for group in groups:
            mask = pa.compute.equal(rows[BUCKET], group[BUCKET])
            for key in keys:
                mask = pa.compute.and_(mask, pa.compute.equal(rows[key], group[key]))
            part = rows.filter(mask).sort_by([(OFFSET, "descending")])
            new += write_fragments(part, dataset, schema=dataset.schema, storage_options=self._table.storage_options)
        group_of_all = lance.LanceOperation.RewriteGroup(old_fragments=fragments, new_fragments=new)
        self._commit(dataset, lance.LanceOperation.Rewrite([group_of_all], []))

    def compact(self) -> None:
        """The library's own way: fragments side by side become one, whatever buckets they are of."""
        self.open().optimize.compact_files(materialize_deletions_threshold=0.0)

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Into bucket 0 of a table without partitions; each says its offset."""
        dataset = self.open()
        table = pa.Table.from_pylist([{"__timestamp": 0, BUCKET: 0, **r} for r in rows], schema=dataset.schema)
        dataset.insert(table)

    def clean_up(self) -> None:
        self.open().cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)

    def restore(self, snapshot_id: SnapshotId) -> None:
        self.open(int(snapshot_id)).restore()

    def partition_keys(self, dataset: lance.LanceDataset) -> list[str]:
        return [k for k in dataset.config().get("lakeward.partition-keys", "").split(",") if k]

    def _commit(self, dataset: lance.LanceDataset, operation: lance.LanceOperation.BaseOperation) -> None:
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
