# SPDX-License-Identifier: Apache-2.0
"""Files in a local folder, on disk before a commit names them. An object store has what it acknowledged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import unquote, urlparse


def sync_files(paths: Iterable[str]) -> None:
    """Whoever wrote them: the system keeps one copy of a file's pages. Without it a power cut may leave a catalog that
    names empty files, since the catalog's own database is synced and they are not. Raises `OSError`."""
    local_files = [local for local in map(_local, paths) if local is not None]
    for path in (*local_files, *dict.fromkeys(map(os.path.dirname, local_files))):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _local(path: str) -> str | None:
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file"):
        return None
    return parsed.path if os.path.exists(parsed.path) else unquote(parsed.path)
