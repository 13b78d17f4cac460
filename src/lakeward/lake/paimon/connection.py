# SPDX-License-Identifier: Apache-2.0
"""The way to a Paimon warehouse: its catalog, its tables, and what its errors mean."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.catalog.catalog_exception import DatabaseNotExistException, TableNotExistException

from lakeward.errors import InvalidConfig, LakeTableGone, LakeUnavailable
from lakeward.model.table import TablePath

_WHERE = "datalake.paimon.warehouse"


class PaimonConnection:
    """Cheap to make; connects on first use. Tables are loaded anew each time: others may have changed them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        if options.get("metastore", "filesystem") != "filesystem":
            reason = f"{options['metastore']!r} is not served yet; a catalog on a folder is: filesystem"
            raise InvalidConfig(where="datalake.paimon.metastore", reason=reason)
        self.warehouse = _local_folder(options.get("warehouse"))

    @cached_property
    def catalog(self) -> Any:
        with lake_errors("", "open"):
            return CatalogFactory.create({**self.options, "warehouse": self.warehouse})

    def load(self, path: TablePath) -> Any:
        """The table with its newest schema. Raises `LakeTableGone`, `LakeUnavailable`."""
        with lake_errors(str(path), "load"):
            return self.catalog.get_table(identifier(path))

    def check_writable(self) -> None:
        """Raises `InvalidConfig`: a folder that cannot be written to does not heal by itself."""
        probe = os.path.join(self.warehouse, f".lakeward-check-{uuid.uuid4().hex}")
        try:
            os.makedirs(self.warehouse, exist_ok=True)
            with open(probe, "wb") as out:
                out.write(b"lakeward")
            os.unlink(probe)
        except OSError as error:
            raise InvalidConfig(where=_WHERE, reason=f"{self.warehouse} cannot be written to: {error}") from error


def identifier(path: TablePath) -> str:
    return f"{path.database}.{path.table}"


def _local_folder(warehouse: str | None) -> str:
    if not warehouse:
        raise InvalidConfig(where=_WHERE, reason="it is missing; name the folder that holds the tables")
    url = urlparse(warehouse)
    if url.scheme not in ("", "file"):
        raise InvalidConfig(where=_WHERE, reason=f"{warehouse}: only folders (a path, or file:) are written to")
    return os.path.abspath(unquote(url.path) if url.scheme else warehouse)


@contextmanager
def lake_errors(table: str, what: str) -> Iterator[None]:
    """Inside, a missing table is `LakeTableGone` and trouble outside `LakeUnavailable`."""
    try:
        yield
    except (TableNotExistException, DatabaseNotExistException) as error:
        raise LakeTableGone(table=table) from error
    except (OSError, RuntimeError, pa.ArrowException) as error:
        reason = f"{type(error).__name__}: {error}"
        raise LakeUnavailable(lake="paimon", what=f"{what} {table}".strip(), reason=reason) from error
