# SPDX-License-Identifier: Apache-2.0
"""The contract suite of hot store plugins. Subclass `HotContract` in a test module, give it a `store`, and
run pytest.
"""

import pytest

# Before the parts are imported: a failed assert then shows its values in a third party's run too.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in ("logs", "keyed")))

from lakeward_testing.hots.contract import HotContract  # noqa: E402

__all__ = ["HotContract"]
