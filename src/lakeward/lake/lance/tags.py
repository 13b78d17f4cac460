# SPDX-License-Identifier: Apache-2.0
"""Tags of a Lance table: names of versions, one small JSON file each. Written here, whole or not at all: the library
writes them in place, and a full disk then leaves an empty file at which it fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakeward.lake.lance.failures import lake_errors
from lakeward.lake.tablefiles import TableFiles

_FOLDER, _SUFFIX = "_refs/tags", ".json"


@dataclass(frozen=True)
class LanceTags:
    files: TableFiles
    root: str
    table: str
    """Its name, for messages."""

    def versions(self) -> dict[str, int | None]:
        """The version of each tag; None where its file is broken."""
        with lake_errors(self.table, "list tags of"):
            names = self.files.names(f"{self.root}/{_FOLDER}")
        tags = [n.removesuffix(_SUFFIX) for n in names if n.endswith(_SUFFIX) and not n.startswith(".")]
        return {tag: None if (body := self._load(tag)) is None else body["version"] for tag in tags}

    def put(self, tag: str, version: int, manifest_bytes: int) -> None:
        """Replaces what the tag named before, and a broken file. Calling it twice is safe."""
        old = self._load(tag) or {}
        if old.get("version") == version and old["manifestSize"] == manifest_bytes:
            return
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        new = {"branch": None, "version": version, "updatedAt": now, "manifestSize": manifest_bytes}
        body = {"createdAt": now, "metadata": {}, **old, **new}
        with lake_errors(self.table, "tag a version of"):
            self.files.put(self.path(tag), json.dumps(body, indent=2))

    def delete(self, tag: str) -> None:
        with lake_errors(self.table, "delete a tag of"):
            self.files.delete(self.path(tag))

    def path(self, tag: str) -> str:
        return f"{self.root}/{_FOLDER}/{tag}{_SUFFIX}"

    def _load(self, tag: str) -> Mapping[str, Any] | None:
        with lake_errors(self.table, "read a tag of"):
            data = self.files.read_bytes(self.path(tag))
        try:
            body = json.loads(data or b"")
        except ValueError:  # also bytes that are not UTF-8
            return None
        is_whole = isinstance(body, dict) and all(type(body.get(k)) is int for k in ("version", "manifestSize"))
        return body if is_whole else None
