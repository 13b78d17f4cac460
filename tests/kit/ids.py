# SPDX-License-Identifier: Apache-2.0
"""Ids that come in the same order each time, for tests that replay a path."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.model import draw_ids_from


@contextmanager
def repeatable_ids() -> Iterator[None]:
    """Inside, every new id of this process is the next number."""
    numbers = itertools.count(1)
    before = draw_ids_from(lambda: uuid.UUID(int=next(numbers)))
    try:
        yield
    finally:
        draw_ids_from(before)
