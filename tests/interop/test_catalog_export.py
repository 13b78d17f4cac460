# SPDX-License-Identifier: Apache-2.0
"""`lakeward catalog export` registers every lake table in another catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from lakeward.cli.app import run
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row


def test_tables_are_registered_once_and_differences_are_named(
    lake: IcebergLakeStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LakeSuite().make_log(lake, "one")
    log.append(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    LakeSuite().make_log(lake, "two")
    options = lake.connection.options
    source = ",".join(f"{k}={v}" for k, v in options.items())
    target = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db", "warehouse": options["warehouse"]}
    command = ["catalog", "export", "--from", source, "--to", ",".join(f"{k}={v}" for k, v in target.items())]
    assert run(command) == 0
    assert capsys.readouterr().out.splitlines() == ["contract.one  registered", "contract.two  registered"]
    other = load_catalog("export", **target)
    assert other.load_table(("contract", "one")).scan().to_arrow().num_rows == 2
    assert run(command) == 0
    assert "there already" in capsys.readouterr().out
    log.append(B0, row(3))
    LakeRound.plan(lake, log).run()
    assert run(command) == 1
    assert "differs" in capsys.readouterr().out
    other.close()


@pytest.mark.parametrize("target", ["type=no-such", "a,b", "=x"])
def test_a_wrong_target_is_wrong_usage(lake: IcebergLakeStorage, target: str) -> None:
    assert run(["catalog", "export", "--from", "type=sql,uri=sqlite://,warehouse=file:///tmp", "--to", target]) == 2
