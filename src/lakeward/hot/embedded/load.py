# SPDX-License-Identifier: Apache-2.0
"""A table of the store that is filled with rows from before it had a log, and is no table for anybody else yet.

Its files lie where they will stay. `meta.db` knows it as one that is loading, with how far that came: files that are
done, and the rows of each bucket then. Rows beyond that may be in KV already, which counts them itself.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.bucketing import assign_buckets
from lakeward.bucketing.pieces import split_buckets, split_partitions
from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.kv.bucketdatabase import make_builder
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.kv.load import KvLoad
from lakeward.hot.embedded.metadb import StoredLoad
from lakeward.hot.embedded.services import StoreServices
from lakeward.model import Bucket, TableInfo, fault_point
from lakeward.spi import HotLoad

_SAVE_ROWS = 200_000
"""Rows that a crash can cost at most, in addition to the current file."""

_OPEN_BUCKETS = 32
"""Rows come by partition mostly: each bucket keeps files open, and there may be thousands."""


class EmbeddedLoad(HotLoad):
    def __init__(self, stored: StoredLoad, services: StoreServices) -> None:
        self._services, self.note = services, stored.note
        self._stored = stored.table
        self._take(HotTable(stored.table, services), stored.progress)

    def _take(self, hot: HotTable, progress: Mapping[str, Any]) -> None:
        self.hot = hot
        self.files = self._saved_files = int(progress.get("files", 0))
        known = {Bucket.parse(b): int(n) for b, n in progress.get("rows", {}).items()}
        self._counts: defaultdict[Bucket, int] = defaultdict(int, known)
        self._rows = self._saved_rows = sum(known.values())
        self._open: OrderedDict[Bucket, KvLoad] = OrderedDict()
        self._builder = make_builder(
            self.table, {s.schema_id: s for s in hot.schemas}, KvOptions.of(self._services.options.config)
        )

    @property
    def table(self) -> TableInfo:
        return self.hot.info

    @property
    def rows(self) -> int:
        return self._rows

    def put(self, rows: pa.Table) -> None:
        descriptor = self.table.descriptor
        for partition, part in split_partitions(self.table, rows):
            if partition:
                self.hot.create_partition(partition)
            several = descriptor.bucket_count > 1
            numbers = assign_buckets(part, descriptor) if several else np.zeros(part.num_rows, np.int32)
            for number, piece in split_buckets(part, numbers, descriptor.bucket_count):
                bucket = Bucket(partition, number)
                for batch in piece.combine_chunks().to_batches():
                    self._kv(bucket).put(batch, self._counts[bucket], self.table.created_at_ms)
                    self._counts[bucket] += batch.num_rows
                    self._rows += batch.num_rows
        fault_point("load.put", table=str(self.table.path), rows=self.rows)

    def _kv(self, bucket: Bucket) -> KvLoad:
        kv = self._open.get(bucket)
        if kv is None:
            if len(self._open) >= _OPEN_BUCKETS:
                _, oldest = self._open.popitem(last=False)
                oldest.flush()
                oldest.close()
            services = self._services
            kv = KvLoad(self.hot.bucket_folder(bucket) / "kv", self._builder, services.kv, services.clock)
        self._open[bucket] = kv
        self._open.move_to_end(bucket)
        return kv

    def save(self, files: int) -> None:
        self.files = files
        if self.rows - self._saved_rows >= _SAVE_ROWS:
            self._save()

    def _save(self) -> None:
        if (self.files, self.rows) == (self._saved_files, self._saved_rows):
            return
        for kv in self._open.values():
            kv.flush()
        fault_point("load.before-save", table=str(self.table.path))
        counts = {str(b): n for b, n in self._counts.items()}
        self._services.meta.save_progress(self.table.table_id, {"files": self.files, "rows": counts})
        self._saved_files, self._saved_rows = self.files, self.rows

    def begin_anew(self, note: Mapping[str, Any]) -> None:
        self.close()
        old = self.hot.folder
        folder = self._services.meta.begin_anew(self.table.table_id, note)
        self.note = note
        self._take(HotTable(replace(self._stored, folder=folder, partitions={}), self._services), {})
        self._services.folder.remove(old)

    def seal(self, at_least: Mapping[Bucket, int]) -> Mapping[Bucket, int]:
        self._save()
        ends = {b: max(self._counts.get(b, 0), at_least.get(b, 0)) for b in {*self._counts, *at_least}}
        for bucket, rows in sorted(self._counts.items()):
            self._kv(bucket).seal(rows, ends[bucket])
        self.close()
        return ends

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
