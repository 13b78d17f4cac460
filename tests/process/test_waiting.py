# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests: a wait that gives up asks the processes around it for their stacks."""

from __future__ import annotations

import pytest

from lakeward.errors import TimedOut
from lakeward_testing import wait_until


def test_waiting_returns_the_first_true_answer_and_names_what_did_not_come() -> None:
    answers = iter([0, None, "here"])
    assert wait_until(lambda: next(answers), what="an answer") == "here"
    with pytest.raises(TimedOut, match=r"a miracle did not end within .* still nothing"):
        wait_until(lambda: False, limit_s=0.05, what="a miracle", state=lambda: "still nothing")
