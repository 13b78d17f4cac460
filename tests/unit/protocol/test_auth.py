# SPDX-License-Identifier: Apache-2.0
"""Tokens and roles: who may do what, and that secrets are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import Forbidden, InvalidConfig, Unauthorized
from lakeward.protocol.auth import ANONYMOUS, GRANTS, Role, Token, TokenFile, TokenSet

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


SHOP = Token.parse("sam:read:s5:shop.*+crm.orders")


def test_a_token_can_be_good_for_some_tables() -> None:
    assert SHOP.secret == "s5"
    assert [SHOP.may_use(t) for t in ("shop.a", "crm.orders", "crm.people", "shopping.a")] == [True, True, False, False]
    assert [SHOP.may_see(d) for d in ("shop", "crm", "hr")] == [True, True, False]
    SHOP.check_database("shop", "this call")
    with pytest.raises(Forbidden, match=r"hr\.pay"):
        SHOP.check_table("hr.pay", "this call")
    with pytest.raises(Forbidden, match="all of crm"):
        SHOP.check_database("crm", "this call")
    with pytest.raises(Forbidden, match="all tables"):
        SHOP.check_all("this call")
    ANONYMOUS.check_all("this call")


def test_a_jobs_token_is_good_for_all_of_them() -> None:
    with pytest.raises(InvalidConfig, match="every table"):
        Token.parse("etl:job:s3:shop.*")


def test_a_file_without_a_token_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# ann:admin:top\n\n")
    with pytest.raises(InvalidConfig, match="names no token"):
        TokenFile(file)


def test_a_token_is_taken_back_while_the_server_runs(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann:admin:top\nbob:read:eye\n")
    tokens = TokenSet.parse([], TokenFile(file))
    assert tokens.identify("eye", "this call").name == "bob"
    file.write_text("ann:admin:top\n")
    with pytest.raises(Unauthorized):
        tokens.identify("eye", "this call")
    file.write_text("ann:king:top\n")
    assert tokens.identify("top", "this call").name == "ann", "what cannot be read changes nothing"
    file.write_text("# nobody\n")
    with pytest.raises(Unauthorized):
        tokens.identify("top", "this call")
    assert not tokens.is_open
