# SPDX-License-Identifier: Apache-2.0
"""The protocol's version: `major.minor`. A peer one minor version older works; an older one gets a clear answer."""

from __future__ import annotations

from lakeward.errors import IncompatibleVersion, InvalidRequest

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 3
PROTOCOL = f"{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}"
PROTOCOL_HEADER = "Lakeward-Protocol"
MINORS_SUPPORTED = 1

READ_PLANS_BY_POST = 3
"""The minor since which a read plan, which takes a lease, is asked for by POST."""


def check_peer(peer: str, theirs: str | None, *, ours: str = PROTOCOL) -> None:
    """Raises `IncompatibleVersion` unless both sides can talk. No version at all (curl, a browser) is let through.

    A newer minor is fine for us: unknown fields are skipped, and it is the newer side that knows both."""
    if theirs is None:
        return
    their_major, their_minor = _parse(theirs)
    our_major, our_minor = _parse(ours)
    if their_major != our_major or their_minor < our_minor - MINORS_SUPPORTED:
        raise IncompatibleVersion(peer=peer, what="protocol", theirs=theirs, ours=ours)


def is_older(theirs: str | None, minor: int) -> bool:
    """Does a peer say that it is of a version before this minor?"""
    return theirs is not None and _parse(theirs) < (PROTOCOL_MAJOR, minor)


def _parse(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and text.isascii() and major.isdigit() and minor.isdigit()):
        raise InvalidRequest(what=PROTOCOL_HEADER, reason=f"{text!r} is no major.minor")
    return int(major), int(minor)
