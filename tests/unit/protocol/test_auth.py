# SPDX-License-Identifier: Apache-2.0
"""Tokens and roles: who may do what, and that secrets are never shown."""

from __future__ import annotations

import pytest

from lakeward.errors import Forbidden, InvalidConfig, Unauthorized
from lakeward.protocol.auth import ANONYMOUS, GRANTS, Role, Token, TokenSet

TOKENS = TokenSet.parse(["ann:read:s1", "bob:write:s2", "etl:job:s3", "ops:admin:s4:with:colons"])


@pytest.mark.parametrize(
    ("secret", "may"),
    [
        ("s1", {Role.READ}),
        ("s2", {Role.READ, Role.WRITE}),
        ("s3", {Role.READ, Role.JOB}),
        ("s4:with:colons", {Role.READ, Role.WRITE, Role.JOB, Role.ADMIN}),
    ],
)
def test_what_each_role_may_do(secret: str, may: set[Role]) -> None:
    for needed in Role:
        if needed in may:
            assert needed in GRANTS[TOKENS.authorize(secret, needed, "this call").role]
        else:
            with pytest.raises(Forbidden, match="this call"):
                TOKENS.authorize(secret, needed, "this call")


@pytest.mark.parametrize("secret", [None, "", "s", "s1 ", "S1", "é"])
def test_any_other_secret_is_nobody(secret: str | None) -> None:
    with pytest.raises(Unauthorized):
        TOKENS.authorize(secret, Role.READ, "this call")


def test_without_tokens_everybody_is_let_in() -> None:
    assert TokenSet().authorize(None, Role.ADMIN, "this call") is ANONYMOUS


@pytest.mark.parametrize("text", ["", "ann", "ann:read", "ann:read:", ":read:s", "ann:king:s"])
def test_tokens_that_are_none_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Token.parse(text)
    assert "king" not in str(raised.value)


def test_a_secret_is_not_shown() -> None:
    assert "s1" not in repr(TOKENS)
