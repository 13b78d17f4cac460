# SPDX-License-Identifier: Apache-2.0
"""The partitions of one table of the store: made, checked, expired, and their files removed."""

from __future__ import annotations

import threading
from pathlib import Path

from lakeward.errors import InvalidRequest, PartitionExpired
from lakeward.hot.embedded.metadb import HotTableState
from lakeward.hot.embedded.partitions import check_time, is_expired
from lakeward.hot.embedded.services import StoreServices
from lakeward.model import HIVE_NULL, BucketFunction, TableInfo, fault_point, partition_name, partition_values


class HotPartitions:
    """Partitions of one table of the store."""

    def __init__(self, stored: HotTableState, services: StoreServices) -> None:
        self.info, self._folder, self._services = stored.info, stored.folder, services
        self.options = services.options.table(stored.info)
        self._partitions = dict(stored.partitions)
        self._lock = threading.RLock()

    @property
    def folder(self) -> Path:
        return self._services.folder.tables / self._folder

    @property
    def is_partitioned(self) -> bool:
        return self.info.descriptor.is_partitioned

    def _known_partitions(self) -> list[tuple[str, int]]:
        return list(self._partitions.items()) if self.is_partitioned else [("", 0)]

    def remote_parts(self) -> list[str]:
        return remote_parts(self.info)

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(sorted(self._partitions))

    def create_partition(self, name: str) -> None:
        """Safe to repeat. Raises `InvalidRequest`, `PartitionExpired`."""
        with self._lock:
            if name in self._partitions:
                return
            self._check_partition(name)
            self._check_expired(name)
            self._partitions[name] = self._services.meta.add_partition(
                self.info.table_id, name, self._services.clock.now_ms()
            )

    def _check_partition(self, name: str) -> None:
        what, keys = f"partition {name!r} of {self.info.path}", self.info.descriptor.partition_keys
        values = partition_values(name)
        if len(values) != len(keys):
            raise InvalidRequest(
                what=what, reason=f"{len(values)} values for partition keys {', '.join(keys) or '(none)'}"
            )
        partition_name(values)
        for key, value in zip(self.info.descriptor.partitioning, values, strict=True):
            key.check(value)
        if HIVE_NULL in values and self.info.descriptor.bucket_function is BucketFunction.HUDI:
            raise InvalidRequest(what=what, reason=f"Hudi's readers take {HIVE_NULL} for a partition without a value")
        if self.options.auto_partition is not None:
            check_time(self.options.auto_partition, str(self.info.path), name)
        most = self._services.options.max_partitions
        if len(self._partitions) >= most:
            raise InvalidRequest(
                what=what, reason=f"the table has {most} partitions, the most that max.partition.num allows"
            )

    def _check_expired(self, name: str) -> None:
        if name and self.is_expired(name):
            raise PartitionExpired(table=str(self.info.path), partition=name)

    def is_expired(self, name: str) -> bool:
        auto = self.options.auto_partition
        return auto is not None and is_expired(auto, str(self.info.path), name, self._services.clock.now_ms())

    def remove_partition_files(self, partition_id: int) -> None:
        """Deletes the files of a dropped partition. Raises `ServerUnavailable` when the remote tier does not answer.
        Safe to repeat."""
        fault_point("hotlog.before-drop-partition", partition_id=partition_id)
        self._services.folder.remove(self.folder / f"p{partition_id}")
        if self._services.remote is not None:
            self._services.remote.remove([*self.remote_parts(), f"p{partition_id}"])
        self._services.meta.forget_partition(partition_id)


def remote_parts(info: TableInfo) -> list[str]:
    """Where a table's segments lie in the remote tier."""
    return [info.path.database, f"{info.path.table}-{info.table_id}"]
