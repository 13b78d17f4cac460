# SPDX-License-Identifier: Apache-2.0
"""The door of the Lance lake: options in, `LakeStorage` out. `warehouse` is a folder or an S3 address; without it the
server keeps the lake in its own folder.

The library is imported when a lake is opened, not with this door: it does not outlive a fork, and Spark's Python
workers are forked from a process that has every door imported.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from lakeward.errors import InvalidConfig, UnknownOption
from lakeward.lake.s3files import S3_OPTIONS
from lakeward.spi.lakeplugin import LakePlugin

if TYPE_CHECKING:
    from lakeward.lake.lance.storage import LanceLakeStorage

_WAREHOUSE = "warehouse"


class LanceLakePlugin(LakePlugin):
    def defaults(self, data: Path) -> dict[str, str]:
        return {_WAREHOUSE: str((data / _WAREHOUSE).resolve())}


def open_lake(options: Mapping[str, str]) -> LanceLakeStorage:
    """Raises `UnknownOption`, `InvalidConfig`."""
    from lakeward.lake.lance.storage import LanceLakeStorage

    if unknown := sorted(set(options) - {_WAREHOUSE, *S3_OPTIONS}):
        (nearest, *_) = (*difflib.get_close_matches(unknown[0], S3_OPTIONS, 1), _WAREHOUSE)
        raise UnknownOption(where="datalake.lance", key=unknown[0], nearest=nearest)
    where, given = f"datalake.lance.{_WAREHOUSE}", options.get(_WAREHOUSE, "")
    url = urlparse(given)
    if url.scheme in ("s3", "s3a") and url.netloc:
        return LanceLakeStorage(f"s3://{url.netloc}{url.path.rstrip('/')}", options)
    if not given or url.scheme not in ("", "file"):
        raise InvalidConfig(where=where, reason=f"{given!r} is no folder (a path, or file:) and no s3:// address")
    return LanceLakeStorage(os.path.abspath(unquote(url.path) if url.scheme else given))


load = LanceLakePlugin("lance", open_lake)
