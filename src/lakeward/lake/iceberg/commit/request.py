# SPDX-License-Identifier: Apache-2.0
"""A commit as data: the new snapshot and the requirements for it to land. It can be sent again unchanged.

PyIceberg's own transaction has one requirement of each type and re-bases a stale commit; this request does neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar
from uuid import UUID

from pyiceberg.catalog.rest import Endpoints, RestCatalog
from pyiceberg.catalog.rest.response import ErrorResponse, _handle_non_200_response
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Namespace, Table, TableIdentifier
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from requests import codes
from requests.exceptions import HTTPError, RequestException

from lakeward.errors import CommitUnknown, InvalidRequest, LakeTableGone, LakeUnavailable, LeaseLost
from lakeward.lake.core.failures import explain
from lakeward.lake.iceberg.connect.connection import COORDINATOR_ID, IcebergConnection
from lakeward.lake.iceberg.meta.failures import database_errors
from lakeward.lake.iceberg.meta.ownpaths import delete_old_metadata
from lakeward.lake.iceberg.meta.summary import summary_of, totals_of
from lakeward.model import RoundId
from lakeward.protocol.codec import Packed, decode, encode
from lakeward.protocol.heartbeat import LEASED, LeaseCheck, LeasedAnswer, LeasedCommit
from lakeward.protocol.routes import LEASED_TYPE
from lakeward.spi import TAG, LakeTotals

FOR_EVER_MS = 2**63 - 1
"""A tag's own age limit, so that a table-wide `history.expire.max-ref-age-ms` never removes it."""


@dataclass(frozen=True, kw_only=True)
class CommitRequest(Packed):
    """A commit request. `main` and `tag`: the snapshots that were checked; None: the reference must not exist."""

    packed_as: ClassVar = ("iceberg-commit", 2)

    table_uuid: str
    table_id: str
    round_id: RoundId
    main: int | None
    tag: int | None
    main_ref: str | None
    is_first: bool
    """The table had no snapshot: no tag can exist, and PyIceberg refuses the requirement."""

    snapshot: Snapshot
    refs: dict[str, int] = field(default_factory=dict)
    """Other tags and branches as they were read; required by a commit that removes snapshots, which one of them may
    need.
    """

    expire: tuple[int, ...] = ()

    @classmethod
    def on(
        cls,
        metadata: TableMetadata,
        *,
        table_id: str,
        round_id: RoundId,
        snapshot: Snapshot,
        expire: tuple[int, ...] = (),
    ) -> CommitRequest:
        main, tag = metadata.refs.get(MAIN_BRANCH), metadata.refs.get(TAG)
        return cls(
            table_uuid=str(metadata.table_uuid),
            table_id=table_id,
            round_id=round_id,
            main=metadata.current_snapshot_id,
            tag=None if tag is None else tag.snapshot_id,
            main_ref=None if main is None else main.model_dump_json(),
            is_first=not metadata.snapshots,
            snapshot=snapshot,
            refs={n: r.snapshot_id for n, r in metadata.refs.items() if n not in (MAIN_BRANCH, TAG)},
        )

    @property
    def keys(self) -> Mapping[str, str]:
        return summary_of(self.snapshot)

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        tag = () if self.is_first else (assert_ref(TAG, self.tag),)
        others = tuple(assert_ref(name, at) for name, at in self.refs.items()) if self.expire else ()
        return (AssertTableUUID(uuid=UUID(self.table_uuid)), assert_ref(MAIN_BRANCH, self.main), *tag, *others)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        main_ref = None if self.main_ref is None else SnapshotRef.model_validate_json(self.main_ref)
        limits = (
            {} if main_ref is None else main_ref.model_dump(by_alias=True, exclude={"snapshot_id", "snapshot_ref_type"})
        )
        main = {
            "ref-name": MAIN_BRANCH,
            "type": SnapshotRefType.BRANCH,
            "snapshot-id": self.snapshot.snapshot_id,
            **limits,
        }
        tag = {
            "ref-name": TAG,
            "type": SnapshotRefType.TAG,
            "snapshot-id": self.snapshot.snapshot_id,
            "max-ref-age-ms": FOR_EVER_MS,
        }
        moves = (SetSnapshotRefUpdate.model_validate(main), SetSnapshotRefUpdate.model_validate(tag))
        removed_snapshots = (
            (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(self.expire)}),) if self.expire else ()
        )
        return (AddSnapshotUpdate(snapshot=self.snapshot), *moves, *removed_snapshots)


def assert_ref(name: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    """Requires that the reference points to this snapshot; None: that it does not exist."""
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot_id})


_REFUSED = (BadRequestError, UnauthorizedError, AuthorizationExpiredError, ForbiddenError, TooManyRequestsError)
"""Answers from which it is certain that nothing was committed."""

_COMMIT_ERRORS: dict[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}

CONFLICTS = (CommitFailedException, ValueError)
"""ValueError: another branch used the sequence number; the request can never land."""


def send(connection: IcebergConnection, table: Table, request: CommitRequest) -> TableMetadata:
    """Sends the request; returns the table's metadata after it. Raises `CONFLICTS`, `CommitUnknown`, `LakeTableGone`,
    `LakeUnavailable`."""
    with _ending(table, request):
        response = connection.catalog.commit_table(table, request.requirements, request.updates)
    if not connection.removes_old_metadata(connection.catalog):
        delete_old_metadata(table.io, table.metadata, response.metadata)
    return response.metadata


def send_leased(
    connection: IcebergConnection, table: Table, request: CommitRequest, leased: LeasedCommit
) -> tuple[LakeTotals, LeasedAnswer | None]:
    """Sends a leased commit. Returns figures of the table after it, and the coordinator's answer; None where the
    catalog sent none. Raises `LeaseLost`, also where an older server replaced this one since the catalog was opened,
    and the errors of `send`."""
    catalog, name = connection.catalog, table.name()
    assert isinstance(catalog, RestCatalog), "only a REST catalog names its coordinator"
    may_expire = tuple(int(s.snapshot_id) for s in leased.check.expirable)
    message = CommitTableRequest(
        identifier=TableIdentifier(namespace=Namespace(list(name[:-1])), name=name[-1]),
        requirements=replace(request, expire=may_expire).requirements,
        updates=request.updates,
    )
    body = f'{message.model_dump_json()[:-1]},"{LEASED}":{json.dumps(encode(leased))}}}'
    url = catalog.url(Endpoints.update_table, **catalog._split_identifier_for_path(message.identifier))
    with _ending(table, request):
        response = catalog._session.post(url, data=body.encode(), headers={"Content-Type": LEASED_TYPE})
        try:
            response.raise_for_status()
        except HTTPError as error:
            if response.status_code == codes.unsupported_media_type:
                catalog.properties.pop(COORDINATOR_ID, None)  # the next round checks its lease in a call of its own
                reason, check = "the server was replaced by one that does not check leases with commits", leased.check
                raise LeaseLost(table=".".join(name), round_id=check.round_id, job=check.job, reason=reason) from error
            _check_refused(response.text, ".".join(name), leased.check)
            _handle_non_200_response(error, _COMMIT_ERRORS)
        answer = response.json()
        if LEASED not in answer:
            return totals_of(CommitTableResponse.model_validate(answer).metadata), None
        landed = decode(LeasedAnswer, answer[LEASED])
    totals = LakeTotals(
        data_files=landed.lake_files,
        delete_files=landed.lake_delete_files,
        rows=landed.lake_rows,
        bytes=landed.lake_bytes,
        snapshots=landed.lake_snapshots,
    )
    return totals, landed


def _check_refused(body: str, table: str, check: LeaseCheck) -> None:
    """Raises `LeaseLost` if the catalog refused the commit for its lease."""
    with suppress(ValueError):  # another kind of answer
        refusal = ErrorResponse.model_validate_json(body).error
        if refusal.type == LeaseLost.__name__:
            raise LeaseLost(table=table, round_id=check.round_id, job=check.job, reason=refusal.message)


@contextmanager
def _ending(table: Table, request: CommitRequest) -> Iterator[None]:
    """Translates errors of a commit by what is known of its outcome."""
    name = ".".join(table.name())
    unknown: tuple[type[Exception], ...] = (RESTError, RequestException, InvalidRequest, *database_errors())
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise LakeTableGone(table=name) from error
    except CONFLICTS:
        raise
    except _REFUSED as error:
        raise LakeUnavailable(lake="iceberg", what=f"commit to {name}", reason=explain(error)) from error
    except unknown as error:
        raise CommitUnknown(table=name, round_id=request.round_id, reason=explain(error)) from error
    except OSError as error:
        raise LakeUnavailable(lake="iceberg", what=f"commit to {name}", reason=explain(error)) from error
