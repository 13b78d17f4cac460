# SPDX-License-Identifier: Apache-2.0
"""Ids check themselves, however they come in."""

from __future__ import annotations

import json
import pickle

import pytest

from lakeward.errors import InvalidRequest
from lakeward.model import Id, InstanceId, JobName, LeaseId, RoundId, SnapshotId, TableId, TableInfo, new_table_id
from lakeward.protocol.codec import decode
from lakeward.protocol.operate import KnownRound
from lakeward.protocol.readplan import WriteToken

BAD = ("../../victim", "..", ".", "/etc", "a/b", "a\\b", "a\0", "a\n", "a b", "%2e%2e", "*", "é", "x" * 129)
KINDS = (TableId, RoundId, LeaseId, InstanceId, SnapshotId)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_id_is_none(kind: type[Id]) -> None:
    for text in BAD:
        with pytest.raises(InvalidRequest, match=kind.what):
            kind(text)


@pytest.mark.parametrize("text", ["", "a\nb", "x" * 129, "\x1b[2J"])
def test_job_names_are_for_people_and_still_no_control_signs(text: str) -> None:
    with pytest.raises(InvalidRequest, match="job name"):
        JobName(text)


def test_ids_that_are_ids() -> None:
    assert TableId("42") == "42", "Fluss's"
    assert JobName("nightly job #2, shop/eu") == "nightly job #2, shop/eu"
    made = new_table_id()
    assert json.loads(json.dumps({made: made})) == {made: made}
    assert type(pickle.loads(pickle.dumps(made))) is TableId
    with pytest.raises(InvalidRequest):
        TableId("")


def test_messages_and_stored_tables_have_them_checked() -> None:
    with pytest.raises(InvalidRequest, match="table id"):
        decode(KnownRound, {"table_id": "../x", "known": True})
    assert type(decode(KnownRound, {"table_id": "x", "known": True}).table_id) is TableId
    with pytest.raises(InvalidRequest, match="table id"):
        TableInfo.from_json({"path": "d.t", "table_id": "../x", "descriptor": {}})
    with pytest.raises(InvalidRequest):
        WriteToken.parse("../x")
