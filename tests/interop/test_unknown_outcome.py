# SPDX-License-Identifier: Apache-2.0
"""A real proxy between us and the catalog loses requests and answers: the round ends right in every case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakeward.errors import CommitConflict, CommitUnknown, LakeUnavailable
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.spi import LakeSnapshot
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.proxy import CatalogProxy, Mischief, catalog_proxy


@pytest.fixture
def proxy(served: Any) -> Iterator[CatalogProxy]:
    with catalog_proxy(served.url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: CatalogProxy) -> Iterator[IcebergLakeStorage]:
    lake = load({"type": "rest", "uri": proxy.url, "request-timeout-s": "5"})
    yield lake
    lake.connection.close()


def finish(made: LakeRound) -> LakeSnapshot:
    """As a driver ends a round: every conflict and every unknown looks for its own round id, unknown sends again
    unchanged.
    """
    request = made.prepare()
    for _ in range(5):
        try:
            return made.commit(request)
        except CommitUnknown:
            found = made.committer.find(made.round_id)
        except CommitConflict:
            found = made.committer.find(made.round_id)
            assert found is not None, "nobody else commits here"
        if found is not None:
            return found
    raise AssertionError("the round did not end")


@pytest.mark.parametrize(
    "mischief",
    [
        (Mischief.LOSE_REQUEST,),
        (Mischief.LOSE_ANSWER,),
        (Mischief.FAIL_AFTER,),
        (Mischief.SEND_TWICE,),
        (Mischief.LOSE_REQUEST, Mischief.LOSE_REQUEST, Mischief.LOSE_ANSWER),
        (Mischief.LOSE_REQUEST, Mischief.SEND_TWICE),
    ],
    ids="+".join,
)
def test_a_round_ends_right_whatever_happens_to_its_commit(
    far: IcebergLakeStorage, proxy: CatalogProxy, mischief: tuple[Mischief, ...]
) -> None:
    name = "_".join(m.replace("-", "") for m in mischief)
    log: ScriptedLog = LakeSuite().make_log(far, name, primary_key=("id",))
    log.upsert(B0, row(1), row(2))
    LakeRound.plan(far, log).run()
    log.upsert(B0, row(2, "new"), row(3))
    made = LakeRound.plan(far, log).write(B0)
    proxy.arm(*mischief)
    snapshot = finish(made)
    assert (snapshot.round_id, snapshot.offsets) == (made.round_id, log.ends())
    assert lake_rows(far, log.table) == log.expected(log.ends())
    assert [s.round_id for s in made.reader.snapshots()].count(made.round_id) == 1


@pytest.mark.parametrize(
    ("mischief", "expected"),
    [
        (Mischief.LOSE_ANSWER, CommitUnknown),
        (Mischief.FAIL_AFTER, CommitUnknown),
        (Mischief.SEND_TWICE, CommitConflict),
    ],
)
def test_each_outcome_has_its_error(
    far: IcebergLakeStorage, proxy: CatalogProxy, mischief: Mischief, expected: type[Exception]
) -> None:
    log = LakeSuite().make_log(far, f"outcome_{mischief.name}")
    log.append(B0, row(1))
    made = LakeRound.plan(far, log).write(B0)
    request = made.prepare()
    proxy.arm(mischief)
    with pytest.raises(expected):
        made.commit(request)


def test_a_catalog_that_stops_answering_leaves_a_request_that_another_process_can_send(served: Any) -> None:
    with catalog_proxy(served.url) as proxy:
        far = load({"type": "rest", "uri": proxy.url, "request-timeout-s": "5"})
        log = LakeSuite().make_log(far, "stops")
        log.append(B0, row(1))
        made = LakeRound.plan(far, log).write(B0)
        request = made.prepare()
        far.connection.close()
    with pytest.raises((CommitUnknown, LakeUnavailable)):  # a refused connection looks like a lost one
        made.commit(request)
    near = load(served.options)
    committer = near.open_committer(log.table)
    assert committer.find(made.round_id) is None
    assert committer.commit(request, made.precondition).round_id == made.round_id
    assert lake_rows(near, log.table) == log.expected(log.ends())
    near.connection.close()
