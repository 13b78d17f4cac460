# SPDX-License-Identifier: Apache-2.0
"""What a server says before it opens its doors."""

from __future__ import annotations

import pytest

from lakeward.config import resolve
from lakeward.server.process import LakewardServer

TOKEN = "ann:admin:top"


@pytest.mark.parametrize(
    ("host", "more", "is_told"),
    [
        ("0.0.0.0", {}, True),
        ("127.0.0.1", {}, False),
        ("0.0.0.0", {"server.tls.cert": "c.pem", "server.tls.key": "k.pem"}, False),
    ],
)
def test_tokens_that_travel_readable_are_warned_of(
    host: str, more: dict[str, str], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    LakewardServer(resolve(environment={}, arguments={"server.host": host, "server.tokens": [TOKEN], **more}))
    assert ("tokens travel readable" in caplog.text) is is_told
    assert "top" not in caplog.text
