# SPDX-License-Identifier: Apache-2.0
"""docs/formats/lance.md: its search over lake and hot rows finds what was written a moment ago."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.processes import Job, Server

PAGE = Path(__file__).parents[2] / "docs/formats/lance.md"


@pytest.mark.soak
def test_the_page_runs(tmp_path: Path) -> None:
    server = Server(tmp_path, {"datalake.format": "lance", "datalake.lance.warehouse": str(tmp_path / "lake")})
    job = Job(server, "page", spark=False)
    names: dict[str, Any] = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            text = block.replace("http://127.0.0.1:9050", server.url).replace('"/lake/', f'"{tmp_path}/lake/')
            exec(compile(text, str(PAGE), "exec"), names)
        assert names["search"]([0, 0, 1, 0], 1) == ["a green hat"]
    finally:
        if "client" in names:
            names["client"].close()
        job.kill()
        server.kill()
