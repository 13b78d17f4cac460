# SPDX-License-Identifier: Apache-2.0
"""Messages between versions: fields that had another name, sides and kinds that an older peer does not send."""

from __future__ import annotations

from lakeward.model import DEFAULT_SIDE, TIER, Content, InstanceId, Intent, JobName, RoundId, SideName, TableId
from lakeward.model.side import COMPACT
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.heartbeat import Committed, HeartbeatRequest, TableVerdict, Verdict


def test_a_renamed_field_is_sent_under_both_names_and_read_under_either() -> None:
    committed = Committed(table_id=TableId("t"), token="r1")
    body = encode(committed)
    assert (body["token"], body["round_id"]) == ("r1", "r1")
    del body["token"]
    assert decode(Committed, body) == committed
    assert decode(Committed, {**encode(committed), "round_id": "other"}).token == "r1"


def test_an_older_job_is_taken_to_know_rounds_only() -> None:
    request = decode(HeartbeatRequest, {"job": "j", "instance": "i"})
    assert request == HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"), kinds=(TIER,))


def test_sides_and_kinds_travel_as_text() -> None:
    side = SideName("finance", Content.CHANGELOG)
    verdict = TableVerdict(table_id=TableId("t"), verdict=Verdict.OK, side=side, kind=COMPACT)
    body = encode(verdict)
    assert (body["side"], body["kind"]) == ("finance:changelog", "compact")
    assert decode(TableVerdict, body) == verdict


def test_an_intent_of_an_older_job_has_todays_kind() -> None:
    old = {"round_id": "r", "table_id": "t", "prefix": "p", "token": None, "fence": 0, "recorded_at_ms": 1}
    intents = [decode(Intent, {**old, "kind": kind}) for kind in ("round", "compaction")]
    assert [(i.round_id, i.kind, i.side) for i in intents] == [
        (RoundId("r"), TIER, DEFAULT_SIDE),
        (RoundId("r"), COMPACT, DEFAULT_SIDE),
    ]
