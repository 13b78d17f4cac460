# SPDX-License-Identifier: Apache-2.0
"""The `lakeward` command. One file per command group; a group is imported only when it is called."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The console script. Without the `cli` extra only `lakeward version` works, and says what to install."""
    try:
        import typer  # noqa: F401
    except ModuleNotFoundError:
        sys.exit(_without_typer(sys.argv[1:]))
    from lakeward.cli.app import run
    from lakeward.cli.run.interrupt import guard

    # Rows that come over Flight are aligned as the wire has them, which Arrow would complain of to people.
    os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "ignore")
    guard(sys.argv[1:])
    sys.exit(run(sys.argv[1:]))


def _without_typer(arguments: list[str]) -> int:
    from lakeward import __version__

    if arguments in (["version"], ["--version"]):
        print(f"lakeward {__version__}")
        return 0
    print("lakeward: the command line needs its extra: pip install 'lakeward[cli]'", file=sys.stderr)
    return 2
