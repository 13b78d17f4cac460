# SPDX-License-Identifier: Apache-2.0
"""The remote tier: closed segments in any `pyarrow.fs` file system, seen through manifests that are written last."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from lakeward.config import options
from lakeward.errors import InvalidOptionValue, ServerUnavailable
from lakeward.hot.embedded.log.durable import find_sealed, sync_file, sync_folder, write_whole
from lakeward.hot.embedded.log.index import SparseIndex
from lakeward.hot.embedded.log.manifest import Manifest, RemoteSegment, find_manifest
from lakeward.hot.embedded.log.segment import INDEX_MAGIC, Segment, index_path, log_path, unpack_index, writers_path
from lakeward.model import fault_point

_COPY_BYTES = 8 << 20
_KEPT_MANIFESTS = 2
_CACHED_INDEXES = 4


class RemoteTier:
    """The file system and the folder in it, made from a URI. Thread-safe."""

    def __init__(self, uri: str) -> None:
        """Raises `InvalidOptionValue` for a URI that no file system understands."""
        self.uri = uri
        try:
            self.fs, self.root = pafs.FileSystem.from_uri(uri if "://" in uri else str(Path(uri).resolve()))
        except (pa.ArrowInvalid, ValueError) as error:
            key = options.REMOTE_DATA_DIR.key
            raise InvalidOptionValue(
                where="remote log", key=key, value=uri, reason=str(error), allowed="a folder or a URI"
            ) from error
        self.is_local = isinstance(self.fs, pafs.LocalFileSystem)

    def log(self, parts: Sequence[str], copy: Path) -> RemoteLog:
        """The remote log of one bucket; `copy` is the local file that remembers its manifest."""
        return RemoteLog(self, "/".join((self.root.rstrip("/"), "log", *parts)), copy)

    def remove(self, parts: Sequence[str]) -> None:
        """Removes everything of a table or partition. Safe to repeat."""
        with self.errors_named():
            path = "/".join((self.root.rstrip("/"), "log", *parts))
            if self.fs.get_file_info(path).type != pafs.FileType.NotFound:
                self.fs.delete_dir(path)

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ServerUnavailable(address=f"remote log {self.uri}", reason=str(error)) from error


class RemoteBytes:
    def __init__(self, tier: RemoteTier, path: str) -> None:
        self.where, self._tier = path, tier
        with tier.errors_named():
            self._file = tier.fs.open_input_file(path)

    def read_at(self, position: int, size: int) -> pa.Buffer:
        with self._tier.errors_named():
            return pa.py_buffer(self._file.read_at(size, position))

    def close(self) -> None:
        self._file.close()


class RemoteLog:
    """One bucket's. Reads are lock-free on the current manifest; changes come from one thread at a time."""

    def __init__(self, tier: RemoteTier, root: str, copy: Path) -> None:
        self._tier, self._root, self._copy = tier, root, copy
        self._change = threading.Lock()
        self._indexes: OrderedDict[str, SparseIndex] = OrderedDict()
        self._manifest = self._load_copy()
        self._reconciled = self._swept = False

    # ---- what there is -------------------------------------------------------------------------------------------
    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(s.segment for s in self._manifest.segments)

    @property
    def start(self) -> int | None:
        kept = self._manifest.segments
        return kept[0].segment.base if kept else None

    @property
    def end(self) -> int:
        kept = self._manifest.segments
        return kept[-1].segment.stop if kept else 0

    @property
    def size(self) -> int:
        return sum(s.segment.size for s in self._manifest.segments)

    def find(self, offset: int) -> Segment | None:
        return next((s.segment for s in self._manifest.segments if s.segment.stop > offset), None)

    def open(self, base: int) -> tuple[RemoteBytes, SparseIndex]:
        """Raises `ServerUnavailable`, also when retention removed it meanwhile."""
        for remote_segment in self._manifest.segments:
            if remote_segment.segment.base == base:
                return RemoteBytes(self._tier, self._path(remote_segment, "log")), self._load_index(remote_segment)
        raise ServerUnavailable(address=f"remote log {self._tier.uri}", reason=f"segment {base} was removed")

    def _load_index(self, remote_segment: RemoteSegment) -> SparseIndex:
        index = self._indexes.get(remote_segment.segment_id)
        if index is None:
            index = self._fetch_index(remote_segment)
            self._indexes[remote_segment.segment_id] = index
            while len(self._indexes) > _CACHED_INDEXES:
                self._indexes.popitem(last=False)
        return index

    def _fetch_index(self, remote_segment: RemoteSegment) -> SparseIndex:
        with self._tier.errors_named(), self._tier.fs.open_input_stream(self._path(remote_segment, "index")) as file:
            body = find_sealed(INDEX_MAGIC, file.read())
        return SparseIndex() if body is None else unpack_index(body)[1]  # an empty index is slow, not wrong

    # ---- changing it ---------------------------------------------------------------------------------------------
    def upload(self, folder: Path, segment: Segment) -> None:
        """Copies one closed and fsynced segment, then publishes it. A crash before the manifest leaves files that no
        reader sees and `sweep` removes. Raises `ServerUnavailable`."""
        with self._change, self._tier.errors_named():
            self._reconcile()
            if any(s.segment.base == segment.base for s in self._manifest.segments):
                return
            added = RemoteSegment(uuid.uuid4().hex, segment)
            fault_point("remote.before-upload", base=segment.base)
            self._tier.fs.create_dir(f"{self._root}/{added.segment_id}")
            self._put_file(index_path(folder, segment.base), self._path(added, "index"))
            if writers_path(folder, segment.base).exists():
                self._put_file(writers_path(folder, segment.base), self._path(added, "writers"))
            self._put_file(log_path(folder, segment.base), self._path(added, "log"))
            fault_point("remote.before-manifest", base=segment.base)
            self._publish(self._manifest.with_added(added))

    def remove(self, bases: set[int]) -> None:
        """Lets go of segments: out of the manifest first, then the files. A crash in between
        leaves files to `sweep`.
        """
        with self._change, self._tier.errors_named():
            removed_segments = [s for s in self._manifest.segments if s.segment.base in bases]
            if not removed_segments:
                return
            self._reconcile()
            self._publish(self._manifest.without(bases))
            fault_point("remote.before-remove", bases=sorted(bases))
            for segment in removed_segments:
                self._tier.fs.delete_dir(f"{self._root}/{segment.segment_id}")

    def adopt(self) -> None:
        """Takes the remote's newest manifest for the truth: at the start on a restored folder."""
        with self._change, self._tier.errors_named():
            self._reconcile()

    def sweep_once(self) -> None:
        """Crashes leave something at most once per start."""
        if not self._swept:
            self.sweep()
            self._swept = True

    def sweep(self) -> int:
        """Removes what crashed uploads and removals left; returns how many segments' files."""
        with self._change, self._tier.errors_named():
            self._reconcile()
            known = {s.segment_id for s in self._manifest.segments} | {"manifest"}
            folders = self._tier.fs.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
            gone = [f.path for f in folders if f.type == pafs.FileType.Directory and f.base_name not in known]
            for path in gone:
                self._tier.fs.delete_dir(path)
            return len(gone)

    def _publish(self, manifest: Manifest) -> None:
        path = f"{self._root}/manifest/{manifest.number:020d}.json"
        self._tier.fs.create_dir(f"{self._root}/manifest")
        self._write(path, manifest.to_bytes())
        fault_point("remote.after-manifest", number=manifest.number)
        self._keep(manifest)
        self._drop_old_manifests(manifest.number)

    def _drop_old_manifests(self, newest: int) -> None:
        for number, path in self._list_manifests():
            if number <= newest - _KEPT_MANIFESTS:
                self._tier.fs.delete_file(path)

    def _keep(self, manifest: Manifest) -> None:
        write_whole(self._copy, manifest.to_bytes())
        self._manifest = manifest

    def _load_copy(self) -> Manifest:
        try:
            return find_manifest(self._copy.read_bytes()) or Manifest()
        except FileNotFoundError:
            return Manifest()

    def _reconcile(self) -> None:
        """Once per start: a crash between the remote manifest and the local copy, or a
        restored copy, left ours behind.
        """
        if self._reconciled:
            return
        for number, path in sorted(self._list_manifests(), reverse=True):
            if number <= self._manifest.number:
                break
            with self._tier.fs.open_input_stream(path) as file:
                manifest = find_manifest(file.read())
            if manifest is not None:
                self._keep(manifest)
                break
        self._reconciled = True

    def _list_manifests(self) -> list[tuple[int, str]]:
        infos = self._tier.fs.get_file_info(pafs.FileSelector(f"{self._root}/manifest", allow_not_found=True))
        return [
            (int(i.base_name[:20]), i.path)
            for i in infos
            if i.base_name.endswith(".json") and i.base_name[:20].isdigit()
        ]

    def _path(self, segment: RemoteSegment, kind: str) -> str:
        return f"{self._root}/{segment.segment_id}/{segment.segment.base:020d}.{kind}"

    def _put_file(self, source: Path, path: str) -> None:
        with source.open("rb") as file, self._tier.fs.open_output_stream(path) as sink:
            while piece := file.read(_COPY_BYTES):
                sink.write(piece)
        self._settle(path)

    def _write(self, path: str, data: bytes) -> None:
        with self._tier.fs.open_output_stream(path) as sink:
            sink.write(data)
        self._settle(path)

    def _settle(self, path: str) -> None:
        """A local folder as the remote tier is not durable before an fsync; the local copy goes after this."""
        if self._tier.is_local:
            sync_file(Path(path))
            for folder in list(Path(path).parents)[:3]:
                sync_folder(folder)


def default_uri(folder: Path) -> str:
    return (folder.resolve() / "remote").as_uri()
