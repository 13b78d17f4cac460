# SPDX-License-Identifier: Apache-2.0
"""The part of the test kit that only this repository's tests use; the public part is `lakeward_testing`."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""Child processes that import this package start here."""
