# SPDX-License-Identifier: Apache-2.0
"""What goes wrong outside, as our errors: one place that knows PyIceberg's, SQLAlchemy's and requests' exceptions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from requests.exceptions import RequestException

from lakeward.errors import LakeTableGone, LakeUnavailable
from lakeward.model import of_table

OUTSIDE = (OSError, RESTError, RequestException, pa.ArrowException)
"""Catalog or storage did not do what was asked; `requests` errors are `OSError`s too. Beside these:
`database_errors()`.
"""


def database_errors() -> tuple[type[Exception], ...]:
    """SQLAlchemy's, where it is in use. Jobs and workers on a REST catalog need not wait for its import, a third of a
    second.
    """
    module = sys.modules.get("sqlalchemy.exc")
    return () if module is None else (module.SQLAlchemyError,)


@contextmanager
def lake_errors(table: str, what: str, lake: str = "iceberg") -> Iterator[None]:
    """Inside, a missing table is `LakeTableGone` and trouble outside `LakeUnavailable`; errors name the table."""
    try:
        with of_table(table):
            yield
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise LakeTableGone(table=table) from error
    except (*OUTSIDE, *database_errors()) as error:
        raise LakeUnavailable(lake=lake, what=f"{what} {table}".strip(), reason=describe(error)) from error


def describe(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
