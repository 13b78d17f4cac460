# SPDX-License-Identifier: Apache-2.0
"""Lakeward keeps a lake table as fresh as you asked for.

`import lakeward` is cheap: what needs Arrow, Flight, Spark or a lake library is loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeward.client import connect as connect

__version__ = "0.2.0"
__all__ = ["__version__", "connect"]


def __getattr__(name: str) -> Any:
    if name == "connect":
        from lakeward.client import connect

        return connect
    raise AttributeError(f"module 'lakeward' has no attribute {name!r}")
