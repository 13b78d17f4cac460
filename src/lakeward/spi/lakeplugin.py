# SPDX-License-Identifier: Apache-2.0
"""A lake format as it is installed: what opens it, and what it wants of the processes that use it before it is open.
Callers ask here, and the name of a format stands in configuration alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from lakeward.config.shown import looks_secret
from lakeward.errors import UnsafeLake
from lakeward.model import TableInfo
from lakeward.spi.lake.storage import LakeStorage


class LakePlugin:
    """Entry point of group `lakeward.lake`: called with the options below `datalake.<format>.` it returns a
    `LakeStorage`. A plain function is enough; a subclass adds more. Nothing here blocks or connects. `libraries`:
    modules that are imported when a lake is opened, and not before. For backups, as `fnmatch` patterns below the
    warehouse: `commits` match files that make a commit visible; `pointers` match files that name a commit and are
    replaced by each."""

    def __init__(
        self,
        name: str,
        load: Callable[[Mapping[str, str]], LakeStorage],
        libraries: Sequence[str] = (),
        commits: Sequence[str] = (),
        pointers: Sequence[str] = (),
    ) -> None:
        self.name, self._load, self._libraries, self.commits, self.pointers = name, load, libraries, commits, pointers

    def __call__(self, options: Mapping[str, str]) -> LakeStorage:
        return self._load(options)

    def find_missing(self) -> str | None:
        """The library without which no lake is opened here. Asked by jobs when they start; imports nothing."""
        return next((name for name in self._libraries if find_spec(name) is None), None)

    def wants_catalog(self, options: Mapping[str, str]) -> bool:
        """Does the server keep this lake's catalog, and serve it? Asked by the server with its own options."""
        return False

    def defaults(self, data: Path) -> dict[str, str]:
        """Options where the configuration names none, for the server, jobs and readers alike; `data` is the server's
        folder."""
        return {}

    def server_options(self, options: Mapping[str, str], data: Path) -> dict[str, str]:
        """Options with which the server opens the lake; `data` is the server's folder."""
        return {**self.defaults(data), **options}

    def peer_options(self, options: Mapping[str, str], catalog_uri: str) -> dict[str, str]:
        """Options with which jobs and readers reach the server's lake, without secrets. `catalog_uri`: where the server
        serves a catalog of its own."""
        return without_secrets(options)

    def place(self, options: Mapping[str, str]) -> str:
        """Where tables lie with these options, of the server: two lakes in one place would write one table."""
        return spell_place(options, [k for k in sorted(options) if k in ("name", "uri", "warehouse")])

    def fluss_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options of a Fluss cluster's lake as ours. Raises `UnsafeLake`, `InvalidConfig`."""
        raise UnsafeLake(
            lake=self.name,
            reason="tables of a Fluss cluster are not tiered to this format; leave this one to Fluss's Flink job",
        )

    def check_fluss_table(self, table: TableInfo) -> None:
        """Refuses a table of a Fluss cluster that rounds cannot keep, though Fluss let it be made. Raises
        `InvalidTable`."""


def spell_place(options: Mapping[str, str], keys: Iterable[str]) -> str:
    """The same for every spelling of a folder or a bucket."""
    return ", ".join(f"{k}={_spell(options[k])}" for k in keys if k in options)


def _spell(value: str) -> str:
    plain = value.rstrip("/").replace("s3a://", "s3://", 1)
    path = plain.removeprefix("file://").removeprefix("file:")
    is_folder = "://" not in path and ("/" in path or os.path.isdir(path))
    return os.path.realpath(path) if is_folder else plain


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """A secret stays in its process: each brings its own."""
    return {k: v for k, v in options.items() if not looks_secret(k)}
