# SPDX-License-Identifier: Apache-2.0
"""What a Python worker leaves out of garbage collection."""

from __future__ import annotations

import gc

from lakeward.tiering.work.heap import keep_loaded


def test_what_is_loaded_is_set_aside_once_and_what_comes_later_is_collected() -> None:
    """Setting aside again and again would keep every order's garbage for ever."""
    keep_loaded.cache_clear()
    try:
        keep_loaded()
        aside = gc.get_freeze_count()
        assert aside > 1_000

        later: list[object] = []
        later.append(later)
        keep_loaded()
        assert gc.get_freeze_count() <= aside
        assert any(found is later for found in gc.get_objects())
    finally:
        gc.unfreeze()
        keep_loaded.cache_clear()
