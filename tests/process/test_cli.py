# SPDX-License-Identifier: Apache-2.0
"""The command line without its packages, and asked by a shell."""

from __future__ import annotations

import subprocess
import sys

from lakeward import __version__


def test_without_typer_version_works_and_the_rest_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['lakeward', {!r}]; from lakeward.cli import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", program.format("version")], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, f"lakeward {__version__}\n")
    run = subprocess.run([sys.executable, "-c", program.format("status")], capture_output=True, text=True)
    assert run.returncode == 2
    assert "lakeward[cli]" in run.stderr


def test_completion_knows_commands_and_their_options() -> None:
    def complete(words: str, at: int) -> list[str]:
        environment = {
            "_LAKEWARD_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
            "PATH": "",
            "HOME": "/",
        }
        run = subprocess.run(
            [sys.executable, "-m", "lakeward.cli"], env=environment, capture_output=True, text=True, timeout=120
        )
        return run.stdout.split()

    assert sorted(complete("lakeward tier", 1)) == ["tier", "tier-now"]
    assert "create" in complete("lakeward table c", 2)
