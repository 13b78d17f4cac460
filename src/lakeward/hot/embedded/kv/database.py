# SPDX-License-Identifier: Apache-2.0
"""One bucket's RocksDB, reached through rocksdict; every failure of it leaves here as `KvFailed`.

RocksDB's own write-ahead log is off. Every record is in the bucket's log before it is written here, and each write
batch holds the log offset it brings KV up to (under the empty key), so a crash leaves a KV that is a prefix of the log
(one column family; RocksDB flushes memtables whole and in order) and the log rolls it forward. A second log would
double the bytes written and add nothing. What has to be rolled forward is at most what the memtables held; `flush`
keeps it short.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from lakeward.errors import DiskFull, KvFailed, LakewardError
from lakeward.model import Ballast, fault_point

STATE_KEY = b""
_FIRST_KEY = b"\x00"
_STATE = struct.Struct("<Hqqqq")
_STATE_VERSION = 1
_OWN_HANDLES = 6
"""LOG, LOCK, MANIFEST, a write-ahead log that stays empty, and the folder twice."""

_TABLE_HANDLES = 128
_MEMTABLE_BYTES = 64 << 20
"""Above what a bucket writes between two flushes of its own, which make the log durable first."""


@dataclass(frozen=True)
class KvState:
    """`applied`: every record of the log below this offset is in KV. `rows`: live rows.

    `last_offset` and `last_at_ms` name the last record that was applied: a log that has another one there, or none, is
    not the log that this KV folds (-1: none was applied yet)."""

    applied: int = 0
    rows: int = 0
    last_offset: int = -1
    last_at_ms: int = 0

    def to_bytes(self) -> bytes:
        return _STATE.pack(_STATE_VERSION, self.applied, self.rows, self.last_offset, self.last_at_ms)

    @classmethod
    def from_bytes(cls, data: bytes) -> KvState:
        version, *numbers = _STATE.unpack(data)
        if version != _STATE_VERSION:
            raise ValueError(f"KV state version {version} is not known")
        return cls(*numbers)

    def after(self, *, stop: int, growth: int, records: int, at_ms: int) -> KvState:
        """The state after a batch that ends at `stop`; one without records leaves only the offset behind."""
        if not records:
            return replace(self, applied=stop)
        return KvState(stop, self.rows + growth, stop - 1, at_ms)


class KvResources:
    """Memory that all buckets of a store share: the block cache, and a bound on all memtables together."""

    def __init__(
        self,
        cache_bytes: int = 64 << 20,
        memtable_bytes: int = 128 << 20,
        table_handles: int = _TABLE_HANDLES,
        ballast: Ballast | None = None,
    ) -> None:
        """`table_handles`: how many of its table files one database keeps open. `ballast`: room to open one in."""
        self.ballast = ballast
        self.cache = Cache(cache_bytes)
        self.table_handles = min(table_handles, _TABLE_HANDLES)
        self.memtables = WriteBufferManager(memtable_bytes, False)

    def options(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self.cache)
        blocks.set_bloom_filter(10, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self.memtables)
        options.set_write_buffer_size(_MEMTABLE_BYTES)
        options.set_memtable_prefix_bloom_ratio(0.006)
        options.set_memtable_whole_key_filtering(True)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_open_files(self.table_handles)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        options.set_skip_stats_update_on_db_open(True)
        return options


class KvDatabase:
    """Reads are safe from several threads; writes come from one at a time."""

    def __init__(self, path: Path, resources: KvResources, *, read_only: bool = False) -> None:
        self.path, self._table_handles = path, resources.table_handles
        self._no_wal = WriteOptions()
        self._no_wal.disable_wal = True
        with self._guarded("opening"):
            fault_point("kv.open", path=path)
            if resources.ballast is not None:
                resources.ballast.before_write()
            access = AccessType.read_only(False) if read_only else AccessType.read_write()
            self._db = Rdict(str(path), resources.options(), access_type=access)
            try:
                stored_state = self._db.get(STATE_KEY)
                self.state = KvState() if stored_state is None else KvState.from_bytes(stored_state)
            except BaseException:
                self._db.close()  # else its lock would stand in the way of the next attempt
                raise
            self.handles = self._count_handles()

    def _count_handles(self) -> int:
        return _OWN_HANDLES + min(len(self._db.live_files()), self._table_handles)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        with self._guarded("reading"):
            fault_point("kv.get", path=self.path)
            values: list[bytes | None] = self._db[keys]
            return values

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None], state: KvState) -> None:
        """Puts (None: deletes) in this order, together with the new state, atomically."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        with self._guarded("writing"):
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
            put(STATE_KEY, state.to_bytes())
            fault_point("kv.write", path=self.path)
            self._db.write(batch, self._no_wal)
        self.state = state

    def scan(self, size: int) -> Iterator[list[bytes]]:
        """Every value, in lists of up to `size`, as of the call; the block cache is left to others."""
        read = ReadOptions()
        read.fill_cache(False)
        with self._guarded("scanning"):
            values = self._db.values(from_key=_FIRST_KEY, read_opt=read)
        while True:
            with self._guarded("scanning"):
                chunk = list(islice(values, size))
            if not chunk:
                return
            yield chunk

    def flush(self, *, wait: bool = True) -> None:
        with self._guarded("flushing"):
            fault_point("kv.flush", path=self.path)
            self._db.flush(wait)
            self.handles = self._count_handles()

    def checkpoint(self, path: Path) -> None:
        """A copy by hard links, of everything written before the call."""
        with self._guarded("taking a checkpoint"):
            fault_point("kv.checkpoint", path=self.path)
            Checkpoint(self._db).create_checkpoint(str(path))

    def close(self) -> None:
        with self._guarded("closing"):
            self._db.close()

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except LakewardError:
            raise
        except Exception as error:  # rocksdict raises plain Exceptions
            if "No space left" in str(error) or "Disk quota" in str(error):
                raise DiskFull(where=str(self.path), free_bytes=0, reserve_bytes=0) from error
            raise KvFailed(folder=str(self.path), what=what, reason=str(error)) from error
