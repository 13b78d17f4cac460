# SPDX-License-Identifier: Apache-2.0
"""Storage with credentials that a catalog vends for a limited time: requested by the process that needs them, renewed
before they expire, and stored in its memory alone.
"""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable, Mapping
from tempfile import SpooledTemporaryFile
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import Properties

from lakeward.config.shown import looks_secret
from lakeward.model import Clock

TABLE_MARK = "lakeward.vended-for"
"""Key among storage properties sent to writers: the table whose catalog vends credentials for it."""

_STORES = ("s3.", "gcs.", "adls.")
_EXPIRY = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
_UNKNOWN_MS = 60_000
"""Credentials without an expiry time are requested again after this time."""

_MARGIN_MS = 300_000
"""Credentials are not used for this last part of their time, or for its second half if that is shorter."""

_MEMORY_BYTES = 64 << 20
"""The most memory for a file that is being written; a larger one is buffered on disk."""


def is_vended(properties: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether there are credentials of a store other than the operator's own."""
    secrets = [k for k in properties if k.startswith(_STORES) and looks_secret(k)]
    return any(options.get(key) is None for key in secrets) and not any(key in options for key in secrets)


class VendedStorage:
    """The storage of one table. Thread-safe. `fetch` asks the catalog, and its errors are passed on."""

    def __init__(self, table: str, fetch: Callable[[], FileIO], clock: Clock) -> None:
        self._table, self._fetch, self._clock = table, fetch, clock
        self._lock = threading.Lock()
        self._io: FileIO | None = None
        self._renew_at_ms = 0

    def offer(self, fresh: FileIO) -> None:
        """Stores credentials from a load of the table."""
        with self._lock:
            self._take(fresh)

    def current(self) -> FileIO:
        """Returns storage with credentials that stay valid for a while."""
        with self._lock:
            if self._io is None or self._clock.now_ms() >= self._renew_at_ms:
                self._take(self._fetch())
            assert self._io is not None
            return self._io

    def _take(self, fresh: FileIO) -> None:
        now_ms = self._clock.now_ms()
        ends = [int(v) for k, v in fresh.properties.items() if k.startswith(_EXPIRY) and str(v).isdecimal()]
        left_ms = min(ends, default=now_ms + _UNKNOWN_MS) - now_ms
        self._io, self._renew_at_ms = fresh, now_ms + left_ms - min(left_ms // 2, _MARGIN_MS)

    @property
    def properties(self) -> Properties:
        return {**self.current().properties, TABLE_MARK: self._table}


class VendedFileIO(FileIO):
    """Opens each file with the credentials of that moment."""

    def __init__(self, storage: VendedStorage) -> None:
        self.storage = storage

    @property
    def properties(self) -> Properties:  # type: ignore[override]
        return self.storage.properties

    def new_input(self, location: str) -> InputFile:
        return _VendedInput(location, self.storage)

    def new_output(self, location: str) -> OutputFile:
        return _VendedOutput(location, self.storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.storage.current().delete(location if isinstance(location, str) else location.location)


class _VendedInput(InputFile):
    def __init__(self, location: str, storage: VendedStorage) -> None:
        super().__init__(location)
        self._storage = storage

    def _file(self) -> InputFile:
        return self._storage.current().new_input(self.location)

    def __len__(self) -> int:
        return len(self._file())

    def exists(self) -> bool:
        return self._file().exists()

    def open(self, seekable: bool = True) -> InputStream:
        return _RenewedStream(self.location, self._storage)


class _VendedOutput(OutputFile):
    def __init__(self, location: str, storage: VendedStorage) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _VendedInput(self.location, self._storage)

    def create(self, overwrite: bool = False) -> OutputStream:
        target = lambda: self._storage.current().new_output(self.location).create(overwrite)  # noqa: E731
        return _UploadedStream(target)


class _RenewedStream(io.RawIOBase):
    """A file that is opened again at its position after its credentials have been renewed."""

    def __init__(self, location: str, storage: VendedStorage) -> None:
        self._location, self._storage = location, storage
        self._io: FileIO | None = None
        self._stream: Any = None
        self._open()

    def _open(self) -> Any:
        current = self._storage.current()
        if current is not self._io:
            at = 0 if self._stream is None else self._stream.tell()
            stream: Any = current.new_input(self._location).open()
            stream.seek(at)
            if self._stream is not None:
                self._stream.close()
            self._io, self._stream = current, stream
        return self._stream

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        stream = self._open()
        return bytes(stream.read() if size is None or size < 0 else stream.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class _UploadedStream(io.RawIOBase):
    """Buffers a file and uploads it when it is closed, with credentials of that moment, however long writing took."""

    def __init__(self, target: Callable[[], OutputStream]) -> None:
        self._target = target
        self._spool: Any = SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - closed with the stream

    def write(self, data: Any) -> int:
        return int(self._spool.write(data))

    def tell(self) -> int:
        return int(self._spool.tell())

    def writable(self) -> bool:
        return True

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        if kind is not None:
            self._discard()
        self.close()

    def _discard(self) -> None:
        self._spool.close()

    def close(self) -> None:
        if not self.closed and not self._spool.closed:
            self._spool.seek(0)
            with self._spool, self._target() as out:
                shutil.copyfileobj(self._spool, out, 1 << 20)
        super().close()
