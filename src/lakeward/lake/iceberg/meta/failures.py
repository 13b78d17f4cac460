# SPDX-License-Identifier: Apache-2.0
"""Errors of PyIceberg, SQLAlchemy and requests as lake errors."""

from __future__ import annotations

import sys

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from requests.exceptions import RequestException

from lakeward.lake.core import failures

OUTSIDE = (OSError, RESTError, RequestException, pa.ArrowException)
"""Catalog or storage did not do what was asked; `requests` errors are `OSError`s too. Beside these:
`database_errors()`.
"""


def database_errors() -> tuple[type[Exception], ...]:
    """SQLAlchemy's errors, if it is imported. Jobs and workers on a REST catalog need not import it, which takes a
    third of a second."""
    module = sys.modules.get("sqlalchemy.exc")
    return () if module is None else (module.SQLAlchemyError,)


lake_errors = failures.lake_errors(
    "iceberg",
    *OUTSIDE,
    missing=(NoSuchTableError, NoSuchNamespaceError),
    is_transient=lambda error: isinstance(error, database_errors()),
)
