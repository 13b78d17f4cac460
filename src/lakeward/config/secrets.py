# SPDX-License-Identifier: Apache-2.0
"""Decides by the name of a setting whether its value may be shown, logged, or sent to another process."""

from __future__ import annotations

import re

SENSITIVE_NAMES = "(?i)secret|password|token|credential|key|sas|authorization"
"""Wide on purpose: a value that is hidden without need costs a look into the file it is from. Java reads it too."""

_SECRET = re.compile(SENSITIVE_NAMES)


def looks_secret(key: str) -> bool:
    return _SECRET.search(key) is not None
