# SPDX-License-Identifier: Apache-2.0
"""Which files of a local lake a backup takes, while rounds go on: what a commit names is there before the commit is,
so the files that make commits are listed first and everything else after them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakeward.spi import LakePlugin

_POINTER, _COMMIT, _OTHER = "pointer", "commit", "other"

OWN_CATALOGS = ("uri", "type", "metastore", "catalog-impl", "py-catalog-impl")
"""Options of lakes whose catalog is neither in their folder nor the server's."""


@dataclass(frozen=True, kw_only=True)
class LakeFolder:
    """A lake whose tables lie in a folder of this machine, complete with its catalog or in that of the server. A
    pointer that is newer than the commits would look like a table that was moved back."""

    name: str
    plugin: LakePlugin
    folder: Path

    def files(self) -> Iterator[str]:
        """Paths below the folder: a state of every table that its readers can open, if each is copied before the next
        one is asked for. A file that expires meanwhile may be gone then."""
        yield from self._list(_POINTER)
        commits = self._list(_COMMIT)
        yield from self._list(_OTHER)
        yield from commits

    def _list(self, kind: str) -> list[str]:
        paths = (
            os.path.relpath(os.path.join(root, name), self.folder)
            for root, _, names in os.walk(self.folder)
            for name in names
        )
        return [path for path in paths if self._kind(path) == kind]

    def _kind(self, path: str) -> str:
        for kind, patterns in ((_POINTER, self.plugin.pointers), (_COMMIT, self.plugin.commits)):
            if any(fnmatch(path, pattern) for pattern in patterns):
                return kind
        return _OTHER


def find_lake_folder(name: str, plugin: LakePlugin, settings: Mapping[str, str], warehouse: str) -> LakeFolder | None:
    """None: its files or its catalog are elsewhere. `settings` are those of the configuration."""
    url = urlsplit(warehouse)
    if not warehouse or url.scheme not in ("", "file") or any(key in settings for key in OWN_CATALOGS):
        return None
    return LakeFolder(name=name, plugin=plugin, folder=Path(unquote(url.path) if url.scheme else warehouse))
