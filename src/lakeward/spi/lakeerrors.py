# SPDX-License-Identifier: Apache-2.0
"""Errors of a lake's library as ours, around every call of a lake plugin: files of a lake table were written by others,
and what a library raises about one that is damaged is of any kind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lakeward.errors import LakeFileBroken, LakeUnavailable, LakewardError
from lakeward.model import DEFAULT_SIDE, UNNAMED, TableInfo, TablePath, of_table

_PANIC = "PanicException"
"""The panic of a Rust library on an unexpected file. It is not an `Exception`, so other handlers do not catch it."""

_WRAPPED = "_is_typed"


class TypedCalls:
    """All public methods and properties of a subclass, and the iterators that they return, raise `LakewardError`s, and
    `NotImplementedError` for what a format cannot do. Damaged files are `LakeFileBroken`; trouble with storage or
    memory is `LakeUnavailable`. A plugin's more exact errors pass."""

    _lake_name, _table_name = UNNAMED, UNNAMED

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if name.startswith("_") or name == "name" or getattr(member, _WRAPPED, False):
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(cls, name, property(_typed(member.fget), member.fset, member.fdel, member.__doc__))
            elif callable(member) and not isinstance(member, type):
                setattr(cls, name, _typed(member))


def _typed(method: Callable[..., Any]) -> Callable[..., Any]:
    what = method.__name__.replace("_", " ")

    @functools.wraps(method)
    def call(self: TypedCalls, *args: Any, **kwargs: Any) -> Any:
        lake, table = getattr(self, "name", self._lake_name), _named_table(args, kwargs) or self._table_name
        with _translated(str(lake), table, what):
            answer = method(self, *args, **kwargs)
        if isinstance(answer, TypedCalls):
            answer._lake_name, answer._table_name = str(lake), table
        return _items(answer, str(lake), table, what) if isinstance(answer, Iterator) else answer

    setattr(call, _WRAPPED, True)
    return call


def _items(answer: Iterator[Any], lake: str, table: str, what: str) -> Iterator[Any]:
    with _translated(lake, table, what):
        yield from answer


@contextmanager
def _translated(lake: str, table: str, what: str) -> Iterator[None]:
    with of_table(table if table != UNNAMED else ""):
        try:
            yield
        except (OSError, MemoryError, pa.ArrowMemoryError) as error:
            raise LakeUnavailable(lake=lake, what=f"{what} of {table}", reason=_describe(error)) from error
        except BaseException as error:
            if _is_ours(error):
                raise
            raise LakeFileBroken(lake=lake, table=table, what=what, reason=_describe(error)) from error


def _is_ours(error: BaseException) -> bool:
    """Is it no library's error about a file?"""
    if isinstance(error, LakewardError) or type(error).__module__.startswith("lakeward"):
        return True
    if not isinstance(error, Exception):
        return type(error).__name__ != _PANIC
    return isinstance(error, NotImplementedError) and not isinstance(error, pa.ArrowException)


def _named_table(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    for value in (*args, *kwargs.values()):
        path = getattr(value, "path", value) if isinstance(value, TableInfo) else value
        if isinstance(path, TablePath):
            return str(path)
    return None


def _describe(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


@contextmanager
def lake_named(name: str) -> Iterator[None]:
    """Inside, a lake that does not answer is called by the name that it is configured under. That of `datalake.format`
    has none, and stays its format."""
    try:
        yield
    except LakeUnavailable as error:
        name_lake(error, name)
        raise


def name_lake(error: Exception, name: str) -> None:
    if isinstance(error, LakeUnavailable) and name != DEFAULT_SIDE.lake:
        error.lake = name
