# SPDX-License-Identifier: Apache-2.0
"""Another engine on an Iceberg table, played by stock PyIceberg: it knows nothing of rounds, offsets or tags."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from lakeward.model import SnapshotId, TablePath


class IcebergForeignEngine:
    def __init__(self, catalog: Catalog, path: TablePath) -> None:
        self._catalog, self._name = catalog, (path.database, path.table)

    def load(self) -> Table:
        return self._catalog.load_table(self._name)

    def touch(self) -> None:
        """A snapshot on main in which nothing changes."""
        with self.load().transaction() as change, change.update_snapshot().fast_append():
            pass

    def rewrite(self, seed: int = 1) -> None:
        """All live rows into new files in one snapshot, in another order; offsets stay a column."""
        table = self.load()
        rows = table.scan().to_arrow()
        order = list(range(rows.num_rows))
        random.Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
        old = [task.file for task in table.scan().plan_files()]
        new = _dataframe_to_data_files(table.metadata, rows.take(pa.array(order, pa.int64())), table.io)
        with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
            for file in old:
                overwrite.delete_data_file(file)
            for file in new:
                overwrite.append_data_file(file)

    def append(self, rows: pa.Table) -> None:
        self.load().append(rows)

    def delete(self, condition: str) -> None:
        """Copy on write: the rows are gone from their files."""
        with _without_warnings():
            self.load().delete(condition)

    def expire(self) -> None:
        """Every snapshot but what a reference points to."""
        table = self.load()
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in kept]
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()

    def roll_back(self, snapshot_id: SnapshotId) -> None:
        update = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": int(snapshot_id)}
        self._catalog.commit_table(self.load(), (), (SetSnapshotRefUpdate.model_validate(update),))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """PyIceberg says that it writes by copy though the table asks for merge-on-read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
