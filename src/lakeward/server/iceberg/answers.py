# SPDX-License-Identifier: Apache-2.0
"""Answers of the Iceberg catalog: tables as JSON, and every failure with the status and type that clients act on."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import Response
from pydantic import ValidationError
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.exceptions import ValidationError as UnfitChange
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import SQLAlchemyError

from lakeward.errors import LakewardError, without_login
from lakeward.lake.iceberg.meta.version import metadata_json
from lakeward.model import find_disk_trouble

log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitFailedException, 409, "CommitFailedException"),
    (ValidationError, 400, "BadRequestException"),
    (UnfitChange, 400, "BadRequestException"),
    (NotImplementedError, 406, "UnsupportedOperationException"),
    (ValueError, 400, "BadRequestException"),
    (KeyError, 400, "BadRequestException"),
    (RecursionError, 400, "BadRequestException"),
    (OverflowError, 400, "BadRequestException"),
)


def answer(body: Any, status: int = 200) -> Response:
    return Response(json.dumps(body), status_code=status, media_type="application/json")


def done() -> Response:
    return Response(status_code=204)


def answer_table(
    location: str | None,
    metadata: TableMetadata,
    config: dict[str, str] | None = None,
    body: str | None = None,
    credentials: list[dict[str, Any]] | None = None,
) -> Response:
    """The metadata is put in as PyIceberg writes it, without a second parse. `body`: it, written already."""
    head = "{" if location is None else f'{{"metadata-location":{json.dumps(location)},'
    tail = "" if config is None else f',"config":{json.dumps(config)}'
    tail += "" if credentials is None else f',"storage-credentials":{json.dumps(credentials)}'
    return Response(
        f'{head}"metadata":{metadata_json(metadata) if body is None else body}{tail}}}', media_type="application/json"
    )


def answer_error(error: Exception) -> Response:
    full = find_disk_trouble(error)
    if full is not None:
        # Not 507: engines take that as a commit that failed, and remove files which a lost answer's commit may name.
        return _failure(503, type(full).__name__, str(full))
    if isinstance(error, LakewardError):
        return _failure(error.http_status, type(error).__name__, str(error))
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            return _failure(status, name, _first_line(error))
    # What happened before the failure is not known here: 500 tells a committing client exactly that.
    log.error("the Iceberg catalog failed", exc_info=error)
    unavailable = isinstance(error, SQLAlchemyError | OSError)
    text = (
        "the catalog's storage did not answer; the server's log says why"
        if unavailable
        else "the server failed; its log says why"
    )
    return _failure(500, "InternalServerError", text)


def _failure(status: int, name: str, message: str) -> Response:
    return answer({"error": {"message": without_login(message), "type": name, "code": status}}, status)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error).strip("'\"").splitlines()[0][:500] if str(error) else type(error).__name__
