# SPDX-License-Identifier: Apache-2.0
"""The options that say how a file is written, the same for `write` and `table create --from`."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.files.cellformat import LOCALES, DateOrder

Delimiter = Annotated[str | None, typer.Option("--delimiter", help="CSV: what separates cells; else detected.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Text files: utf-8, utf-16, latin-1; else detected.")]
LocaleName = Annotated[
    str | None,
    typer.Option("--locale", help=f"CSV: numbers, dates and yes/no as written there: {', '.join(LOCALES)}."),
]
Decimal = Annotated[str | None, typer.Option("--decimal", help="CSV: the decimal sign, . or a comma.")]
Thousands = Annotated[str | None, typer.Option("--thousands", help="CSV: what separates groups of three digits.")]
Order = Annotated[
    DateOrder | None,
    typer.Option("--date-order", help="CSV: what a date begins with; day for 31.1.2026, month for 1/31/2026."),
]
DateFormat = Annotated[
    str | None, typer.Option("--date-format", help="CSV: how dates and times are written exactly, as %d.%m.%y.")
]
TrueWords = Annotated[
    list[str] | None, typer.Option("--true", help="CSV: one more word for true; may be given many times.")
]
FalseWords = Annotated[
    list[str] | None, typer.Option("--false", help="CSV: one more word for false; may be given many times.")
]
Nulls = Annotated[
    list[str] | None,
    typer.Option("--null", help="CSV: a text that means NULL, besides an empty cell; may be given many times."),
]
