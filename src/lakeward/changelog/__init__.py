# SPDX-License-Identifier: Apache-2.0
"""The fold of a changelog range: which rows are live at its end, and which older rows it replaced. Pure."""

from lakeward.changelog.fold import Fold
from lakeward.changelog.keyed import KeyedFold

__all__ = ["Fold", "KeyedFold"]
