# SPDX-License-Identifier: Apache-2.0
"""The README's Python example works when pasted, against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.kit.serverprocess import ServerProcess

README = Path(__file__).parents[2] / "README.md"


def test_the_example_works_when_pasted(shared_server: ServerProcess, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "http://127.0.0.1:9050" in block
    program = (
        block.replace("http://127.0.0.1:9050", shared_server.url)
        + "\nprint(client.read('shop.orders').to_table().to_pylist())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "pyarrow.Table" in run.stdout
    assert run.stdout.splitlines()[-1] == "[{'id': 1, 'state': 'paid', 'amount': 9.9}]"
