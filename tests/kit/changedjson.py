# SPDX-License-Identifier: Apache-2.0
"""JSON messages with one thing in them replaced, for tests that send anything in any field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def places_in(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, value in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        yield from places_in(value, (*path, key))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with this value at that place."""
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = changed(body[path[0]], path[1:], value)
    return copy
