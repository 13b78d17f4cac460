# SPDX-License-Identifier: Apache-2.0
"""A lake format as it is installed: what opens it, and what it wants of the processes that use it before it is open.
Callers ask here, and the name of a format stands in configuration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lakeward.config.secrets import looks_secret
from lakeward.errors import UnsafeLake
from lakeward.model.table import TableInfo
from lakeward.spi.lake import LakeStorage


class LakePlugin:
    """What an entry point of group `lakeward.lake` names: called with the options below `datalake.<format>.` it gives a
    `LakeStorage`. A plain function will do; a subclass says more. Nothing here blocks or connects."""

    def __init__(self, name: str, load: Callable[[Mapping[str, str]], LakeStorage]) -> None:
        self.name, self._load = name, load

    def __call__(self, options: Mapping[str, str]) -> LakeStorage:
        return self._load(options)

    def wants_catalog(self, options: Mapping[str, str]) -> bool:
        """Does the server keep this lake's catalog, and serve it? Asked by the server with its own options."""
        return False

    def defaults(self, data: Path) -> dict[str, str]:
        """Options where the configuration names none, for the server, jobs and readers alike; `data` is the server's
        folder."""
        return {}

    def server_options(self, options: Mapping[str, str], data: Path) -> dict[str, str]:
        """What the server opens the lake with; `data` is its folder."""
        return {**self.defaults(data), **options}

    def peer_options(self, options: Mapping[str, str], catalog_uri: str) -> dict[str, str]:
        """What jobs and readers need to reach the server's lake, without secrets. `catalog_uri`: where the server
        serves a catalog that it keeps."""
        return without_secrets(options)

    def place(self, options: Mapping[str, str]) -> str:
        """Where tables lie with these options, of the server: two lakes in one place would write one table."""
        return ", ".join(f"{k}={options[k]}" for k in sorted(options) if k in ("name", "uri", "warehouse"))

    def fluss_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options of a Fluss cluster's lake as ours. Raises `UnsafeLake`, `InvalidConfig`."""
        raise UnsafeLake(
            lake=self.name,
            reason="tables of a Fluss cluster are not tiered to this format; leave this one to Fluss's Flink job",
        )

    def check_fluss_table(self, table: TableInfo) -> None:
        """Refuses a table of a Fluss cluster that rounds cannot keep, though Fluss let it be made. Raises
        `InvalidTable`."""


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """A secret stays in its process: each brings its own."""
    return {k: v for k, v in options.items() if not looks_secret(k)}
