# SPDX-License-Identifier: Apache-2.0
"""The whole hot store contract."""

from __future__ import annotations

from lakeward_testing.hots.keyed import KeyedContract
from lakeward_testing.hots.logs import LogContract


class HotContract(LogContract, KeyedContract):
    """What any hot store must give a round, a union read and verify. Subclass it, name the class `Test...`, give the
    fixture `store` (a `HotStore`) and the hooks `create`, `write`, `delete`, `add_column`, `make_gap`; declare what is
    missing in `gaps`.
    """
