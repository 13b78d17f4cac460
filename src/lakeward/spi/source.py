# SPDX-License-Identifier: Apache-2.0
"""The plug point for sources: systems that rows come from.

A source reads from a position and yields groups: rows for tables, and the position behind them. The hot store stores
both together, so it alone knows how far a source has come; a source keeps no position of its own that matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from lakeward.protocol.sources import Frame, GroupFile, SourceLag, SourceStatus

State = Mapping[str, Any]
"""A position as JSON: what a source needs to go on behind it. Empty before the first group."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Rows for one table. The steps of a group are stored in order."""

    frame: Frame
    rows: pa.Table


@dataclass(kw_only=True)
class SourceGroup:
    """Rows and the position behind them, which are stored together: steps, or `files` that tasks of the source have
    sent already. `position` describes `state` to people."""

    state: State
    position: str = ""
    steps: Sequence[Step] | Iterator[Step] = ()
    files: Sequence[GroupFile] = field(default_factory=tuple)


class SourceRun(Protocol):
    """The services of a running source. `client` is a `lakeward.client.Client`."""

    name: str
    client: Any
    status: SourceStatus
    until_idle: bool

    def is_stopping(self) -> bool:
        """True once the process was asked to end: yield what is read and return."""

    def report(
        self, phase: str, position: str = "", lag: SourceLag | None = None, held_at: str | None = None
    ) -> SourceStatus:
        """Tells the server how it goes, at most every second; returns what people ask of the source meanwhile."""


class Source(ABC):
    """One source in the process that ingests. Used by one thread."""

    @abstractmethod
    def read(self, state: State, run: SourceRun) -> Iterator[SourceGroup]:
        """Yields groups from `state` on until `run.is_stopping()`, the source is paused, or with `run.until_idle` all
        is read that was there at the start. The caller stores each before it asks for the next,
        so a position may be confirmed to the origin once the generator is resumed. Creates tables as needed.

        Called again with the last stored state after an error that is `retryable`; a crash leaves nothing but what the
        origin keeps (a slot). Raises `SourceStopped` where going on would make a table wrong, and `SourceUnavailable`
        while the origin is away."""

    @abstractmethod
    def close(self) -> None:
        """Ends connections. Safe to repeat."""

    def drop(self, state: State) -> Sequence[str]:
        """Removes what the origin keeps for this source, and describes it. Safe to repeat."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SourceOption:
    """An option of a kind of source, as `lakeward ingest` takes it. `kind`: str, int or bool; `is_list`: it may be
    repeated. `is_for_run`: it is not stored, and counts for one run of a source that exists, too."""

    name: str
    help: str
    kind: type = str
    default: Any = None
    is_list: bool = False
    is_for_run: bool = False


class SourceKind(ABC):
    """A kind of source: the object that an entry point in group `lakeward.source` loads. Its module imports no library
    of an extra: the command line asks every kind for its options."""

    name: str
    extra: str
    """The extra of `lakeward` that brings its libraries."""

    options: Sequence[SourceOption] = ()
    """Those of this kind, beside what every kind has: `to`, `buckets` and `freshness`."""

    @abstractmethod
    def configure(self, url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration that the server stores, checked, without secrets. Raises `InvalidRequest`."""

    @abstractmethod
    def open(self, config: Mapping[str, Any], secret: str | None = None) -> Source:
        """`config` with the options for one run. `secret`: the URL with its password, where this process has one.
        Connects to nothing yet."""

    def start_state(self, options: Mapping[str, Any]) -> State | None:
        """A state to begin from in place of the stored one, where options for a run ask for it."""
        return None
