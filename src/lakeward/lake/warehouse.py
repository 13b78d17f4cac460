# SPDX-License-Identifier: Apache-2.0
"""Place of a lake that consists of files alone: a folder or an S3 address, in the option `warehouse`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from lakeward.errors import InvalidConfig, LakeError, LakeTableGone, LakeUnavailable, UnknownOption
from lakeward.lake.allowedpaths import ALLOWED_LOCATIONS, AllowedFiles, AllowedPaths, parse_locations
from lakeward.lake.metadatabounds import LIMIT_OPTION, MetadataBounds
from lakeward.lake.s3files import S3_OPTIONS, files_at
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import TablePath
from lakeward.spi import LakePlugin

WAREHOUSE: Final = "warehouse"
_CHECK: Final = ".lakeward-check-"


class WarehousePlugin(LakePlugin):
    """Plugin of a format whose lake is in the server's own folder unless a warehouse is configured."""

    def defaults(self, data: Path) -> dict[str, str]:
        return {WAREHOUSE: str((data / WAREHOUSE).resolve())}


@dataclass(frozen=True)
class Warehouse:
    """The warehouse of a lake. `location`: contains a folder for each table. `options`: the lake's. `suffix`: end of
    the folders' names."""

    lake: str
    location: str
    options: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""

    @property
    def files(self) -> TableFiles:
        return files_at(self.location, self.options)

    def folder(self, path: TablePath) -> str:
        return f"{self.location}/{path.database}/{path.table}{self.suffix}"

    def files_of(self, path: TablePath) -> TableFiles:
        """Returns the files of one table; other paths are refused."""
        allowed = AllowedPaths(str(path), self.folder(path), self.location, parse_locations(self.options))
        return AllowedFiles(self.files, allowed, MetadataBounds.parse(self.options))

    def check(self) -> None:
        """Writes and deletes a file. Raises `InvalidConfig`."""
        try:
            self.files.probe(self.location, _CHECK)
        except OSError as error:
            reason = f"{self.location} cannot be written to: {error}"
            raise InvalidConfig(where=f"{WAREHOUSE} of a {self.lake} lake", reason=reason) from error


def parse_warehouse(lake: str, options: Mapping[str, str]) -> str:
    """Parses the option: an absolute path, or `s3://bucket/prefix`. Raises `UnknownOption`, `InvalidConfig`."""
    if unknown := sorted(set(options) - {WAREHOUSE, ALLOWED_LOCATIONS, LIMIT_OPTION, *S3_OPTIONS}):
        (nearest, *_) = (*difflib.get_close_matches(unknown[0], S3_OPTIONS, 1), WAREHOUSE)
        raise UnknownOption(where=f"datalake.{lake}", key=unknown[0], nearest=nearest)
    return parse_location(lake, options.get(WAREHOUSE, ""))


def parse_location(lake: str, text: str) -> str:
    """Parses a location. Raises as `parse_warehouse`."""
    url = urlparse(text)
    if url.scheme in ("s3", "s3a") and url.netloc:
        return f"s3://{url.netloc}{url.path.rstrip('/')}"
    if not text or url.scheme not in ("", "file"):
        reason = (
            f"{'' if text else 'it is missing; '}{text!r} is neither a folder (a path, or file:) nor an s3:// address"
        )
        raise InvalidConfig(where=f"datalake.{lake}.{WAREHOUSE}", reason=reason)
    return os.path.abspath(unquote(url.path) if url.scheme else text)


def missing_table(lake: str, files: TableFiles, warehouse: str, table: str) -> LakeError:
    """Returns the error for a missing table. If the whole warehouse is missing, the error is retryable, as it may be
    mounted again."""
    if files.has_folder(warehouse):
        return LakeTableGone(table=table)
    return LakeUnavailable(
        lake=lake, what=f"look for {table}", reason=f"folder {warehouse} does not exist; is it mounted?"
    )
