# SPDX-License-Identifier: Apache-2.0
"""Sends a commit to the catalog, once: it ends as done, refused, conflict or unknown."""

from __future__ import annotations

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from requests.exceptions import RequestException

from lakeward.errors import CommitUnknown, LakeTableGone, LakeUnavailable
from lakeward.lake.iceberg.commit.request import CommitRequest
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.lake.iceberg.meta.failures import database_errors, describe
from lakeward.lake.iceberg.meta.ownpaths import delete_old_metadata

_REFUSED = (BadRequestError, UnauthorizedError, AuthorizationExpiredError, ForbiddenError, TooManyRequestsError)
"""Answers that say for certain that nothing was committed."""

CONFLICTS = (CommitFailedException, ValueError)
"""ValueError: another branch took the sequence number; the request can never land any more."""


def send(connection: IcebergConnection, table: Table, request: CommitRequest) -> TableMetadata:
    """The table's metadata after it. Raises `CONFLICTS`, `CommitUnknown`, `LakeTableGone`, `LakeUnavailable`."""
    catalog, name = connection.catalog, ".".join(table.name())
    unknown: tuple[type[Exception], ...] = (RESTError, RequestException, *database_errors())
    try:
        response = catalog.commit_table(table, request.requirements, request.updates)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise LakeTableGone(table=name) from error
    except CONFLICTS:
        raise
    except _REFUSED as error:
        raise LakeUnavailable(lake="iceberg", what=f"commit to {name}", reason=describe(error)) from error
    except unknown as error:
        raise CommitUnknown(table=name, round_id=request.round_id, reason=describe(error)) from error
    except OSError as error:
        raise LakeUnavailable(lake="iceberg", what=f"commit to {name}", reason=describe(error)) from error
    if not connection.removes_old_metadata(catalog):
        delete_old_metadata(table.io, table.metadata, response.metadata)
    return response.metadata
