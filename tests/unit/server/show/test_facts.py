# SPDX-License-Identifier: Apache-2.0
"""The memory that a control group allows, from files as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.server.show.facts import memory_limit

V1, V2 = "memory.limit_in_bytes", "memory.max"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/system.slice/lakeward.service", {f"system.slice/lakeward.service/{V2}": "2000"}, 2000),
        ("0::/a/b", {f"a/b/{V2}": "max", f"a/{V2}": "3000"}, 3000),
        ("0::/a/b", {f"a/b/{V2}": "4000", f"a/{V2}": "3000"}, 3000),
        ("0::/", {V2: "5000"}, 5000),
        ("0::/../elsewhere", {V2: "5000"}, 5000),
        ("5:cpu:/x\n4:memory:/x\n0::/", {f"memory/x/{V1}": "6000", f"memory/{V1}": str((1 << 63) - 4096)}, 6000),
        ("4:memory:/docker/of-the-host", {f"memory/{V1}": "7000"}, 7000),
        ("0::/a", {f"a/{V2}": "max"}, None),
        ("0::/a", {}, None),
    ],
)
def test_the_least_limit_of_a_group_and_those_above_it(
    groups: str, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text(groups + "\n")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    assert memory_limit(own, root) == limit


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none", tmp_path) is None
