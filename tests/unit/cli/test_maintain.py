# SPDX-License-Identifier: Apache-2.0
"""What `lakeward maintain` refuses before it asks anybody."""

from __future__ import annotations

import pytest

from lakeward.cli.maintain import maintain
from lakeward.errors import InvalidConfig, LakewardError


@pytest.mark.parametrize("on", [True, False])
def test_of_a_fluss_table_maintenance_is_switched_in_fluss(on: bool) -> None:
    with pytest.raises(InvalidConfig, match=r"ALTER TABLE shop\.orders SET \('table\.datalake\.auto-compaction' = "):
        maintain("shop.orders", on=on, fluss="127.0.0.1:1")


def test_what_is_no_tables_name() -> None:
    with pytest.raises(LakewardError, match="orders"):
        maintain("orders")
