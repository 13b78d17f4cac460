# SPDX-License-Identifier: Apache-2.0
"""Errors of storage and libraries as lake errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from lakeward.errors import LakeTableGone, LakeUnavailable, LakewardError
from lakeward.model import of_table

_PANIC = "PanicException"
"""Raised by libraries in Rust for an unexpected file. It is not an `Exception`, so other handlers do not catch it."""

LakeErrors = Callable[[str, str], AbstractContextManager[None]]


def lake_errors(
    lake: str,
    *transient: type[Exception],
    missing: tuple[type[Exception], ...] = (),
    is_transient: Callable[[Exception], bool] = lambda _: False,
) -> LakeErrors:
    """Builds the error translation of a format: `errors(table, "read a file of")` runs one operation. `missing` errors
    become `LakeTableGone`. `OSError`, `transient` errors and those that `is_transient` names become `LakeUnavailable`:
    a retry may succeed."""
    transient = (OSError, *transient)

    @contextmanager
    def translate(table: str, what: str) -> Iterator[None]:
        try:
            with of_table(table):
                yield
        except LakewardError:
            raise
        except missing as error:
            raise LakeTableGone(table=table) from error
        except Exception as error:
            if not isinstance(error, transient) and not is_transient(error):
                raise
            raise LakeUnavailable(lake=lake, what=f"{what} {table}".strip(), reason=explain(error)) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise LakeUnavailable(lake=lake, what=f"{what} {table}", reason=f"panic: {error}"[:500]) from error

    return translate


def explain(error: BaseException) -> str:
    """The error's type and the first line of its message."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
