# SPDX-License-Identifier: Apache-2.0
"""Errors of storage and libraries as lake errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from lakeward.errors import LakeTableGone, LakeUnavailable, LakewardError

_PANIC = "PanicException"
"""Of a library in Rust, for a file that it did not expect. It is no `Exception`: it would pass every other handler."""

LakeErrors = Callable[[str, str], AbstractContextManager[None]]


def lake_errors(
    lake: str,
    *transient: type[Exception],
    missing: tuple[type[Exception], ...] = (),
    is_transient: Callable[[Exception], bool] = lambda _: False,
) -> LakeErrors:
    """For a format: `errors(table, "read a file of")` runs one operation. `missing` errors become `LakeTableGone`.
    `OSError`, `transient` errors and those that `is_transient` names become `LakeUnavailable`: a retry may succeed."""
    transient = (OSError, *transient)

    @contextmanager
    def translate(table: str, what: str) -> Iterator[None]:
        try:
            yield
        except LakewardError:
            raise
        except missing as error:
            raise LakeTableGone(table=table) from error
        except Exception as error:
            if not isinstance(error, transient) and not is_transient(error):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise LakeUnavailable(lake=lake, what=f"{what} {table}".strip(), reason=reason) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise LakeUnavailable(lake=lake, what=f"{what} {table}", reason=f"panic: {error}"[:500]) from error

    return translate
