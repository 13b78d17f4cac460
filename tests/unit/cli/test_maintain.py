# SPDX-License-Identifier: Apache-2.0
"""What `lakeward maintain` refuses: before it asks anybody, and of a cluster that does not know the table."""

from __future__ import annotations

import pytest

from lakeward.cli import app
from lakeward.cli.maintain import maintain
from lakeward.errors import InvalidConfig, LakewardError
from lakeward.hot.fluss.failures import Code
from lakeward.hot.fluss.wire.messages import METADATA
from tests.unit.hot.fluss.scripted_server import Call, scripted


@pytest.mark.parametrize("on", [True, False])
def test_of_a_fluss_table_maintenance_is_switched_in_fluss(on: bool) -> None:
    with pytest.raises(InvalidConfig, match=r"ALTER TABLE shop\.orders SET \('table\.datalake\.auto-compaction' = "):
        maintain("shop.orders", on=on, fluss="127.0.0.1:1")


@pytest.mark.parametrize("how", [(), ("--explain",), ("--now",)], ids=str)
def test_of_a_table_that_fluss_does_not_have(how: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            call.done(METADATA, {"coordinator": {"id": 0, "host": "127.0.0.1", "port": server.port}})
        else:
            call.fail(Code.TABLE_NOT_FOUND, "Table shop.nothere does not exist.")

    with scripted(answer) as server:
        address = f"127.0.0.1:{server.port}"
        assert app.run(["maintain", "shop.nothere", *how, "--fluss", address]) == 3
    shown = f"`lakeward status --fluss {address}` shows its lake tables"
    assert capsys.readouterr().err.strip() == f"lakeward: there is no table shop.nothere in Fluss; {shown}"


def test_what_is_no_tables_name() -> None:
    with pytest.raises(LakewardError, match="orders"):
        maintain("orders")
