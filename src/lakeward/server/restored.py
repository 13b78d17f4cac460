# SPDX-License-Identifier: Apache-2.0
"""The mark of a data folder that came back from a backup: until its lakes were read they may be ahead of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.hot.embedded.log.durable import sync_folder, write_whole
from lakeward.model import usable
from lakeward.protocol.codec import decode, encode

MARK = "restored.json"


@dataclass(frozen=True, kw_only=True)
class LakeRecord:
    """A lake as the server of a backup had it. `settings` are those of lakeward.toml, without secrets; `defaults` what
    the format took where they named no place; `place` where its tables lie. `folder`: that of a lake that
    a backup can copy, empty for others."""

    format: str
    place: str
    settings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def all_settings(self) -> dict[str, str]:
        """With them a server on any folder opens the same lake."""
        return {**self.settings, **{k: v for k, v in self.defaults.items() if k not in self.settings}}


@dataclass(frozen=True, kw_only=True)
class RestoredMark:
    backup: str
    begun_at_ms: int
    lakes: Mapping[str, LakeRecord] = field(default_factory=dict)


def write_mark(data: Path, mark: RestoredMark) -> None:
    write_whole(data / MARK, json.dumps(encode(mark)).encode())


def load_mark(data: Path) -> RestoredMark | None:
    """None: an ordinary folder, or none yet. Raises `InvalidRequest` for a mark that somebody edited,
    `DataFolderUnusable`."""
    with usable(data):
        try:
            text = (data / MARK).read_text()
        except FileNotFoundError:
            return None
    return decode(RestoredMark, json.loads(text))


def remove_mark(data: Path) -> None:
    """Safe to repeat."""
    (data / MARK).unlink(missing_ok=True)
    sync_folder(data)


def as_toml(settings: Mapping[str, str]) -> str:
    """Lines of lakeward.toml, as part of one sentence."""
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
