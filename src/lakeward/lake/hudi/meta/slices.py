# SPDX-License-Identifier: Apache-2.0
"""Data files of a table, and the snapshots that see them: pure, except for the listing.

A file group is base files and log files of one id. A log file belongs to the newest base file that was requested before
the log file was completed; a base file replaces those before it, a replacecommit a whole group.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakeward.lake.hudi.meta.properties import parse_partition_path
from lakeward.lake.hudi.meta.timeline import HudiTimeline
from lakeward.model import Bucket, RoundId, partition_name
from lakeward.spi import StoredFile

FOLDER = ".hoodie"
_BASE = re.compile(r"^([^_.][^_]*)_([^_]+)_(\d{17})\.parquet$")
_LOG = re.compile(r"^\.([^_]+)_(\d{17})\.log\.(\d+)(?:_([\d-]+))?$")
_NUMBER = re.compile(r"^(\d{8})-")
_OURS = re.compile(r"^(\d{8})-lw[0-9a-f]{32}-")
_NEVER = "9" * 17

GroupId = tuple[str, str]
"""Partition's folder, file id."""


@dataclass(frozen=True)
class HudiFile:
    """A data file, described by its name. `partition`: its folder below the table's."""

    path: str
    partition: str
    file_id: str
    instant: str
    size_bytes: int
    modified_at_ms: int
    log_version: int = 0
    """0: a base file."""

    @property
    def is_log(self) -> bool:
        return self.log_version > 0

    @property
    def group(self) -> GroupId:
        return self.partition, self.file_id

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def stored(self) -> StoredFile:
        return StoredFile(path=self.path, size_bytes=self.size_bytes, modified_at_ms=self.modified_at_ms)

    def bucket(self, partition_keys: Sequence[str], *, is_pk: bool) -> Bucket | None:
        """Parses the bucket from the file id: a PK table's is that of Hudi's bucket index; a log table's file has it if
        the file is ours."""
        match = (_NUMBER if is_pk else _OURS).match(self.file_id)
        values = parse_partition_path(self.partition)
        if match is None or not set(partition_keys) <= set(values):
            return None
        return Bucket(partition_name([values[k] for k in partition_keys]), int(match[1]))


@dataclass(frozen=True)
class SeenFile:
    """A file in every snapshot completed from `since` on and before `until`."""

    file: HudiFile
    since: str
    until: str
    is_lone: bool = False
    """A log file without a base file before it. hudi-rs skips it once its instant is archived."""

    def is_in(self, completed: str) -> bool:
        return self.since <= completed < self.until


def list_data(root: str) -> Iterator[HudiFile]:
    """Lists every data file in the table's folder, of any writer, whether or not its instant was completed."""
    folders = [""]
    while folders:
        partition = folders.pop()
        with os.scandir(os.path.join(root, partition)) as items:
            for entry in items:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != FOLDER:
                        folders.append(f"{partition}/{entry.name}" if partition else entry.name)
                elif (file := parse_name(entry.name, partition)) is not None:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    yield HudiFile(
                        entry.path, *file[:3], status.st_size, status.st_mtime_ns // 1_000_000, log_version=file[3]
                    )


def parse_name(name: str, partition: str) -> tuple[str, str, str, int] | None:
    """Parses a name to (partition, file id, instant, log version); None: it is not a data file."""
    if match := _BASE.match(name):
        return partition, match[1], match[3], 0
    if match := _LOG.match(name):
        return partition, match[1], match[2], int(match[3])
    return None


def see_files(files: Iterable[HudiFile], timeline: HudiTimeline) -> list[SeenFile]:
    """Returns for each file the snapshots that have it; files of instants that are not completed are in none."""
    replaced = replaced_groups(timeline)
    groups = defaultdict[GroupId, list[tuple[HudiFile, str]]](list)
    for file in files:
        completed = timeline.completion_of(file.instant)
        if completed is not None:
            groups[file.group].append((file, completed))
    seen = []
    for group, members in groups.items():
        end = replaced.get(group, _NEVER)
        bases = sorted((f.instant, done) for f, done in members if not f.is_log)
        for file, done in members:
            # A log file that was completed after a base file was asked for is not in that base file.
            mark = done if file.is_log else f"{file.instant}~"
            until = next((d for instant, d in bases if instant >= mark), _NEVER)
            is_lone = file.is_log and not any(instant < mark for instant, _ in bases)
            seen.append(SeenFile(file, done, min(until, end), is_lone))
    return seen


def replaced_groups(timeline: HudiTimeline) -> dict[GroupId, str]:
    """File groups that were replaced -> when."""
    gone: dict[GroupId, str] = {}
    for instant in timeline.snapshots:
        if instant.action == "replacecommit":
            for partition, ids in timeline.metadata(instant).replaced.items():
                for file_id in ids:
                    gone.setdefault((partition, file_id), instant.completed)
    return gone


def merge_order(files: Iterable[SeenFile]) -> list[HudiFile]:
    """Orders the files of one file group: base file first, then log files in merge order."""
    return [s.file for s in sorted(files, key=lambda s: (s.file.is_log, s.since, s.file.log_version))]


def base_name(file_id: str, number: int, instant: str) -> str:
    return f"{file_id}_{number}-0-0_{instant}.parquet"


def log_name(file_id: str, number: int, instant: str, version: int) -> str:
    return f".{file_id}_{instant}.log.{version}_{number}-0-0"


def new_file_id(bucket: int, round_id: RoundId, number: int, *, is_pk: bool) -> str:
    """Returns a new file id, which begins with the bucket's number, as in Hudi's bucket index; rounds never reuse
    one."""
    unique = round_id.replace("-", "").rjust(32, "0")[-32:]
    if not is_pk:
        return f"{bucket:08d}-lw{unique}-{number}"
    return f"{bucket:08d}-{unique[8:12]}-{unique[12:16]}-{unique[16:20]}-{unique[20:32]}-{number}"
