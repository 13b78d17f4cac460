# SPDX-License-Identifier: Apache-2.0
"""One word per idea: a search for a class finds one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_public_class_name_exists_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "packages").rglob("*.py")]):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 300, "the search looks in the wrong folder"
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
