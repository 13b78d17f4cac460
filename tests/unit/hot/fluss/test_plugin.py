# SPDX-License-Identifier: Apache-2.0
"""The plugin's options: a user beside the addresses or before them, and no password in either."""

from __future__ import annotations

import pytest

from lakeward.errors import InvalidConfig
from lakeward.hot.fluss.plugin import PASSWORD_VARIABLE, FlussPlugin
from lakeward.hot.fluss.wire.messages import AUTHENTICATE, LIST_DATABASES
from tests.unit.hot.fluss.scripted_server import Call, scripted


@pytest.mark.parametrize("before", [True, False])
def test_the_user_logs_in(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "pw")

    def answer(call: Call) -> None:
        is_login = call.key == AUTHENTICATE.key
        call.done(AUTHENTICATE if is_login else LIST_DATABASES, {"challenge": b""} if is_login else {"names": []})

    with scripted(answer) as server:
        address = f"127.0.0.1:{server.port}"
        plugin = FlussPlugin({"bootstrap": f"ann@{address}"} if before else {"bootstrap": address, "user": "ann"})
        assert plugin.store().list_tables() == []
        plugin.store().close()
        assert server.calls[0].body == b"\x0a\x05PLAIN\x12\x07\0ann\0pw"


def test_a_user_without_a_password_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    with pytest.raises(InvalidConfig, match=PASSWORD_VARIABLE):
        FlussPlugin({"bootstrap": "ann@127.0.0.1:1"})
