# SPDX-License-Identifier: Apache-2.0
"""Checks that the warehouse exists and is writable: once, at server start, so that a wrong one is refused with a clear
message.
"""

from __future__ import annotations

import uuid
from urllib.parse import urlparse

from pyiceberg.io import SCHEMA_TO_FILE_IO, FileIO

from lakeward.errors import InvalidConfig, LakeUnavailable
from lakeward.lake.core.failures import explain

_LOCAL = ("", "file")


def check_warehouse(warehouse: str, io: FileIO) -> None:
    """Writes and removes a small file. Raises `InvalidConfig` for what a person must mend, else `LakeUnavailable`."""
    path = f"{warehouse.rstrip('/')}/.lakeward-check-{uuid.uuid4().hex}"
    try:
        with io.new_output(path).create(overwrite=True) as out:
            out.write(b"lakeward")
        io.delete(path)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise _unwritable(warehouse, error) from error
    except ValueError as error:
        raise InvalidConfig(where="datalake.iceberg.warehouse", reason=f"{warehouse}: {error}") from error
    except OSError as error:
        if urlparse(warehouse).scheme in _LOCAL or "NO_SUCH_BUCKET" in str(error) or "NoSuchBucket" in str(error):
            raise _unwritable(warehouse, error) from error
        raise LakeUnavailable(lake="iceberg", what=f"warehouse {warehouse}", reason=explain(error)) from error


def check_scheme(warehouse: str) -> None:
    """Raises `InvalidConfig` for a kind of storage without a writer here."""
    scheme = urlparse(warehouse).scheme
    if scheme and scheme not in SCHEMA_TO_FILE_IO:
        reason = f"{warehouse}: {scheme} is not one of {', '.join(sorted(SCHEMA_TO_FILE_IO))}"
        raise InvalidConfig(where="datalake.iceberg.warehouse", reason=reason)


def _unwritable(warehouse: str, error: OSError) -> InvalidConfig:
    return InvalidConfig(
        where="datalake.iceberg.warehouse", reason=f"{warehouse} cannot be written to: {explain(error)}"
    )
