# SPDX-License-Identifier: Apache-2.0
"""Refused: who asks may not, or the peer does not fit."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class Refused(LakewardError):
    code = "refused"
    http_status = 403


class Unauthorized(Refused):
    code = "unauthorized"
    http_status = 401
    template = "no valid token was sent for {what}: {reason}; set LAKEWARD_TOKEN"
    what: str
    reason: str = "it is missing or not known"


class Forbidden(Refused):
    code = "forbidden"
    template = "token {token_name!r} has role {role}, and {what} needs {needed}"
    token_name: str
    role: str
    what: str
    needed: str


class ReadOnlyWarehouse(Refused):
    code = "read-only-warehouse"
    template = "warehouse {warehouse} is read only: write {instead}"
    warehouse: str
    instead: str


class ForeignCaller(Refused):
    code = "foreign-caller"
    template = "{header} {value!r} is none of this server's names; if it should be, add it to server.allowed-hosts"
    header: str
    value: str


class IncompatibleVersion(Refused):
    code = "incompatible-version"
    http_status = 426
    template = "{peer} speaks {what} version {theirs}, this side speaks {ours}; upgrade the older one"
    peer: str
    what: str
    theirs: str
    ours: str


class InsecureBinding(Refused):
    code = "insecure-binding"
    template = "binding to {address} without a token is refused; set a token, or bind to 127.0.0.1"
    address: str
