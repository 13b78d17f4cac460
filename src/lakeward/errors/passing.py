# SPDX-License-Identifier: Apache-2.0
"""Errors of unavailable or late servers, of tasks, and of tests."""

from __future__ import annotations

from lakeward.errors.root import LakewardError


class Unavailable(LakewardError):
    code = "unavailable"
    retryable = True
    http_status = 503


class ServerUnavailable(Unavailable):
    code = "server-unavailable"
    template = (
        "no answer from {address} to {what}: {reason}; is the server running? (`lakeward server` starts it, "
        "LAKEWARD_SERVER names another)"
    )
    address: str
    reason: str
    what: str = "a call"


class ClusterUnavailable(ServerUnavailable):
    code = "cluster-unavailable"
    template = "no answer from {address} to {what}: {reason}; is this Fluss cluster running?"


class IssuerUnavailable(ServerUnavailable):
    code = "issuer-unavailable"
    template = "{what} needs the login service at {address}: {reason}"


class TimedOut(Unavailable):
    code = "timed-out"
    http_status = 504
    template = "{what} did not end within {limit_s} s: {state}"
    what: str
    limit_s: float
    state: str


class ReadTooFarAhead(Unavailable):
    code = "read-too-far-ahead"
    http_status = 409
    template = "table {table}, bucket {bucket}: offset {wanted} was asked for and the log ends at {end}"
    table: str
    bucket: str
    wanted: int
    end: int


class CutNotReady(Unavailable):
    code = "cut-not-ready"
    http_status = 409
    template = "cut {cut} is {state}: {reason}; `lakeward cut list` shows how far its tables are"
    cut: str
    state: str
    reason: str


class StartFailed(LakewardError):
    code = "start-failed"
    template = "the {child} ended with code {exit_code} before it was up; it said:\n{said}"
    child: str
    exit_code: int
    said: str


class SplitFailed(LakewardError):
    """An unexpected exception in a split; its text is kept."""

    code = "split-failed"
    template = "table {table}, split {split}: {kind}: {text}"
    table: str
    split: str
    kind: str
    text: str


class LeftBehind(LakewardError):
    """A writer fell behind the other writers that read the log with it, and they continued without it."""

    code = "left-behind"
    retryable = True
    template = "table {table} ({side}), split {split}: {what}; the split is written again by itself"
    table: str
    side: str
    split: str
    silent_s: int
    """0: less than a second, or it was not done when the others were."""

    @property
    def message(self) -> str:
        waited = f"this lake took nothing for {self.silent_s} s while another side waited"
        what = waited if self.silent_s else "the other sides did not wait for this lake"
        return self.template.format(**self.facts, what=what)


class FaultInjected(LakewardError):
    code = "fault-injected"
    template = "fault injected at {point}"
    point: str
