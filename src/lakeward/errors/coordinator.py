# SPDX-License-Identifier: Apache-2.0
"""Errors of the coordinator: epochs, leases, ledger."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class CoordinatorError(LakewardError):
    code = "coordinator"
    http_status = 409


class LeaseLost(CoordinatorError):
    code = "lease-lost"
    template = "table {table}: round {round_id} of job {job} no longer holds the lease: {reason}"
    table: str
    round_id: str
    job: str
    reason: str


class UnknownWork(CoordinatorError):
    code = "unknown-work"
    template = (
        "job {job} was handed {kind} of table {table}, which it cannot do (it knows {known}), and gave it back; "
        "run jobs and server of one version"
    )
    job: str
    kind: str
    table: str
    known: str


class Superseded(CoordinatorError):
    code = "superseded"
    template = "job {job}: instance {instance} was replaced by {by}; this instance must exit"
    job: str
    instance: str
    by: str


class LedgerGap(CoordinatorError):
    code = "ledger-gap"
    template = (
        "table {table}, bucket {bucket}: range [{start}, {stop}) does not begin where the ledger ends ({ledger_end})"
    )
    table: str
    bucket: str
    start: int
    stop: int
    ledger_end: int


class IllegalTransition(CoordinatorError):
    code = "illegal-transition"
    template = "table {table} cannot go from {source} to {target}"
    table: str
    source: str
    target: str


class TableBusy(CoordinatorError):
    code = "table-busy"
    retryable = True
    template = "table {table}: {reason}"
    table: str
    reason: str
