# SPDX-License-Identifier: Apache-2.0
"""What bodies of requests may hold and take, all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.types import Message

from lakeward.errors import InvalidRequest, Overloaded
from lakeward.server.admission.body import LARGE_AT_ONCE, SMALL_BYTES, BodyBudget, CountedBody

MOST = 4 * SMALL_BYTES


def sent(budget: BodyBudget, *sizes: int) -> CountedBody:
    """A body of which these pieces come, and no end."""
    pieces: Iterator[Message] = iter([{"type": "http.request", "body": bytes(n), "more_body": True} for n in sizes])

    async def receive() -> Message:
        return next(pieces)

    return CountedBody(receive, budget)


async def read(body: CountedBody, pieces: int = 1) -> CountedBody:
    for _ in range(pieces):
        await body.receive()
    return body


def test_large_bodies_share_a_budget_and_small_ones_are_always_taken() -> None:
    async def run() -> None:
        budget = BodyBudget(MOST)
        held = [await read(sent(budget, SMALL_BYTES, MOST - SMALL_BYTES), 2) for _ in range(LARGE_AT_ONCE)]
        assert budget.held == LARGE_AT_ONCE * MOST
        with pytest.raises(Overloaded, match="try again"):
            await read(sent(budget, SMALL_BYTES, 1), 2)
        for _ in range(100):
            await read(sent(budget, SMALL_BYTES))
        held.pop().release()
        again = await read(sent(budget, MOST))
        for body in (*held, again):
            body.release()
        assert budget.held == 0

    asyncio.run(run())


def test_a_body_ends_within_its_time_however_often_something_comes() -> None:
    now = [0.0]

    async def run() -> None:
        body = sent(BodyBudget(MOST, pause_s=1.0, clock=lambda: now[0]), *[1] * 100)
        await read(body, 50)
        now[0] = 11.0
        with pytest.raises(InvalidRequest, match="not whole after 10 s"):
            await read(body)

    asyncio.run(run())
