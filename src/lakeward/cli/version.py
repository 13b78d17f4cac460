# SPDX-License-Identifier: Apache-2.0
"""`lakeward version`."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from lakeward import __version__
from lakeward.protocol.routes import PROTOCOL

PARTS = ("pyarrow", "pyspark", "pyiceberg", "duckdb", "rocksdict", "fastapi")


def register(app: typer.Typer) -> None:
    app.command("version")(show)


def show(as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False) -> None:
    """Versions of Lakeward and of what it works with.

    Example: lakeward version --json"""
    versions = {name: found_version for name in PARTS if (found_version := find_version(name))}
    if as_json:
        print(
            json.dumps({"lakeward": __version__, "protocol": PROTOCOL, "python": platform.python_version(), **versions})
        )
        return
    print(f"lakeward {__version__}")
    print(
        f"protocol {PROTOCOL}, python {platform.python_version()}, "
        + ", ".join(f"{n} {v}" for n, v in versions.items())
    )


def find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
