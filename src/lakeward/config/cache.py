# SPDX-License-Identifier: Apache-2.0
"""The folder for things that can be made again: the Java shim, Java's class archive, a job's name."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/lakeward` or `~/.cache/lakeward`; where that cannot be written, a folder of this user's among
    the temporary ones. Made if it is not there; safe to call from several processes."""
    variables = os.environ if environment is None else environment
    cache = variables.get("XDG_CACHE_HOME") or (f"{variables['HOME']}/.cache" if variables.get("HOME") else None)
    candidates = [Path(cache) / "lakeward"] if cache else []
    candidates.append(Path(tempfile.gettempdir()) / f"lakeward-{_user()}")
    for folder in candidates[:-1]:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    candidates[-1].mkdir(exist_ok=True, mode=0o700)
    if candidates[-1].stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="lakeward-"))
    return candidates[-1]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
