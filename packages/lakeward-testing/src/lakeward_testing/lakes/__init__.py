# SPDX-License-Identifier: Apache-2.0
"""The contract suite of lake plugins. Subclass `LakeContract` in a test module, give it a `lake`, and run pytest."""

import pytest

# Before the parts are imported: a failed assert then shows its values in a third party's run too.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in ("commits", "ddl", "types", "upkeep", "upserts")))

from lakeward_testing.lakes.contract import LakeContract  # noqa: E402
from lakeward_testing.lakes.rounds import LakeRound, lake_rows  # noqa: E402

__all__ = ["LakeContract", "LakeRound", "lake_rows"]
