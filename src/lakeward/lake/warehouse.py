# SPDX-License-Identifier: Apache-2.0
"""Where a lake that is files alone keeps its tables: a folder or an S3 address, by the option `warehouse`."""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from lakeward.errors import InvalidConfig, LakeError, LakeTableGone, LakeUnavailable, UnknownOption
from lakeward.lake.allowedpaths import ALLOWED_LOCATIONS
from lakeward.lake.metadatabounds import LIMIT_OPTION
from lakeward.lake.s3files import S3_OPTIONS
from lakeward.lake.tablefiles import TableFiles
from lakeward.spi.lakeplugin import LakePlugin

WAREHOUSE: Final = "warehouse"


class WarehousePlugin(LakePlugin):
    """Of a format whose lake is in the server's own folder where nobody names a warehouse."""

    def defaults(self, data: Path) -> dict[str, str]:
        return {WAREHOUSE: str((data / WAREHOUSE).resolve())}


def parse_warehouse(lake: str, options: Mapping[str, str]) -> str:
    """An absolute path, or `s3://bucket/prefix`. Raises `UnknownOption`, `InvalidConfig`."""
    if unknown := sorted(set(options) - {WAREHOUSE, ALLOWED_LOCATIONS, LIMIT_OPTION, *S3_OPTIONS}):
        (nearest, *_) = (*difflib.get_close_matches(unknown[0], S3_OPTIONS, 1), WAREHOUSE)
        raise UnknownOption(where=f"datalake.{lake}", key=unknown[0], nearest=nearest)
    given = options.get(WAREHOUSE, "")
    url = urlparse(given)
    if url.scheme in ("s3", "s3a") and url.netloc:
        return f"s3://{url.netloc}{url.path.rstrip('/')}"
    if not given or url.scheme not in ("", "file"):
        reason = f"{given!r} is no folder (a path, or file:) and no s3:// address"
        raise InvalidConfig(where=f"datalake.{lake}.{WAREHOUSE}", reason=reason)
    return os.path.abspath(unquote(url.path) if url.scheme else given)


def missing_table(lake: str, files: TableFiles, warehouse: str, table: str) -> LakeError:
    """What to raise for a table that is not there. A warehouse that is away as a whole may come back with them."""
    if files.has_folder(warehouse):
        return LakeTableGone(table=table)
    return LakeUnavailable(
        lake=lake, what=f"look for {table}", reason=f"folder {warehouse} is not there; is it mounted?"
    )


def check_warehouse(lake: str, files: TableFiles, warehouse: str) -> None:
    """By a file that is written and deleted. Raises `InvalidConfig`."""
    probe = f"{warehouse}/.lakeward-check-{uuid.uuid4().hex}"
    try:
        files.put(probe, "lakeward")
        files.delete(probe)
    except OSError as error:
        reason = f"{warehouse} cannot be written to: {error}"
        raise InvalidConfig(where=f"{WAREHOUSE} of a {lake} lake", reason=reason) from error
