# SPDX-License-Identifier: Apache-2.0
"""Policies and options of the credentials that the catalog hands out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakeward.errors import InvalidConfig
from lakeward.server.iceberg.vending import VendOptions, plan_policy

ROLE = {"vend-role": "arn:aws:iam::123456789012:role/lake"}


def statements(*places: str, writes: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plan_policy(places, writes=writes))["Statement"]
    return found


def test_a_policy_reaches_the_tables_own_place_and_nothing_else() -> None:
    objects, listing, where = statements("s3://lake/db/orders")
    assert (objects["Action"], objects["Resource"]) == (["s3:GetObject"], ["arn:aws:s3:::lake/db/orders/*"])
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["db/orders/*"]}}
    assert where["Action"] == ["s3:GetBucketLocation"]


def test_writes_are_for_those_who_may_write() -> None:
    assert not any("Put" in a or "Delete" in a for s in statements("s3://lake/db/t") for a in s["Action"])
    assert {"s3:PutObject", "s3:DeleteObject"} <= set(statements("s3://lake/db/t", writes=True)[0]["Action"])


@pytest.mark.parametrize(
    ("place", "resource"),
    [
        ("s3://lake/db/t*", "arn:aws:s3:::lake/db/t${*}/*"),
        ("s3a://lake/db/t?", "arn:aws:s3:::lake/db/t${?}/*"),
        ("s3://lake/db/${aws:username}/", "arn:aws:s3:::lake/db/${$}{aws:username}/*"),
        ("s3://lake", "arn:aws:s3:::lake/*"),
    ],
)
def test_a_name_with_signs_of_a_pattern_reaches_no_neighbour(place: str, resource: str) -> None:
    assert statements(place)[0]["Resource"] == [resource]


@pytest.mark.parametrize("duration", ["60", "1 h", "43201", "-900"])
def test_a_duration_that_sts_does_not_take_is_refused(duration: str) -> None:
    with pytest.raises(InvalidConfig, match=f"'{duration}' is not a number of seconds from 900 to 43200"):
        VendOptions.of({**ROLE, "vend-duration-s": duration})


def test_nothing_is_vended_unless_a_role_is_named() -> None:
    assert VendOptions.of({"s3.region": "eu-central-1"}) is None
    options = VendOptions.of({**ROLE, "s3.region": "eu-central-1", "warehouse": "s3://lake"})
    assert options is not None
    assert (options.region, options.duration_s) == ("eu-central-1", 3_600)
    assert options.storage == {"s3.region": "eu-central-1", "client.region": "eu-central-1"}
