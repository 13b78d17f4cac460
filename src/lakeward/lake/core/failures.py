# SPDX-License-Identifier: Apache-2.0
"""Errors of storage and libraries as lake errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from lakeward.errors import LakeUnavailable

_PANIC = "PanicException"
"""Of a library in Rust, for a file that it did not expect. It is no `Exception`: it would pass every other handler."""

LakeErrors = Callable[[str, str], AbstractContextManager[None]]


def lake_errors(
    lake: str, *transient: type[Exception], is_transient: Callable[[Exception], bool] = lambda _: False
) -> LakeErrors:
    """For a format: `errors(table, "read a file of")` runs one operation. `OSError`, what is `transient`, and a
    `ValueError` of which `is_transient` says so become `LakeUnavailable`: they may heal by themselves."""

    healing: tuple[type[Exception], ...] = (OSError, *transient)

    @contextmanager
    def translate(table: str, what: str) -> Iterator[None]:
        try:
            yield
        except healing as error:
            raise LakeUnavailable(lake=lake, what=f"{what} {table}", reason=str(error)) from error
        except ValueError as error:
            if not is_transient(error):
                raise
            raise LakeUnavailable(lake=lake, what=f"{what} {table}", reason=str(error)) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise LakeUnavailable(lake=lake, what=f"{what} {table}", reason=f"panic: {error}"[:500]) from error

    return translate
