# SPDX-License-Identifier: Apache-2.0
"""The root of all errors, and how one travels: as a code, a message and facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, dataclass_transform

_LOGIN = re.compile(r"(?<=://)[^/@\s?#]*@")


@dataclass_transform(kw_only_default=True, eq_default=False)
class LakewardError(Exception):
    """The root. `retryable` says whether the same call may succeed later without anybody changing anything."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    template: ClassVar[str] = "something failed"

    def __init__(self, **facts: Any) -> None:
        """As a dataclass would have it; making a hundred dataclasses would be a seventh of a command's start."""
        for name in fact_names(type(self)):
            if name in facts:
                setattr(self, name, facts.pop(name))
            elif not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} wants the fact {name}")
        if facts:
            raise TypeError(f"{type(self).__name__} has no fact {', '.join(facts)}")
        super().__init__()

    @property
    def facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in fact_names(type(self))}

    @property
    def message(self) -> str:
        return self.template.format(**self.facts)

    def __str__(self) -> str:
        """The message, and what was noted on its way to the caller."""
        return "; ".join([self.message, *getattr(self, "__notes__", ())])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.facts.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return from_wire, (to_wire(self),)


class RemoteError(LakewardError):
    code = "remote"
    http_status = 502
    template = "the peer answered {remote_code}: {text}"
    remote_code: str
    text: str


def to_wire(error: LakewardError) -> dict[str, Any]:
    """The error as plain values: for HTTP bodies, Flight error details and Spark task outcomes. Logins stay here: lakes
    and catalogs put whole addresses into what they say."""
    facts = {k: without_login(v) if isinstance(v, str) else v for k, v in error.facts.items()}
    message = without_login(error.message)
    return {"code": error.code, "message": message, "facts": facts, "retryable": error.retryable}


def without_login(text: str) -> str:
    """The text with user and password taken out of every URI in it."""
    return _LOGIN.sub("", text) if "://" in text else text


def from_wire(body: Mapping[str, Any]) -> LakewardError:
    """The typed error again. Facts that this version does not know are dropped; an unknown code or missing facts become
    a `RemoteError` that keeps the message."""
    cls = _by_code().get(str(body.get("code")))
    facts = body.get("facts")
    if cls is not None and isinstance(facts, Mapping):
        try:
            return cls(**{name: facts[name] for name in fact_names(cls) if name in facts})
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):  # of a format
            pass
    return RemoteError(remote_code=str(body.get("code"))[:100], text=str(body.get("message"))[:10_000])


def tree(root: type[LakewardError] = LakewardError) -> Iterator[type[LakewardError]]:
    """Every class of the tree, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def fact_names(cls: type[LakewardError]) -> tuple[str, ...]:
    """Annotated attributes of the class and its bases, base classes first, without class variables."""
    known = dict[str, str]()
    for each in reversed(cls.__mro__):
        if issubclass(each, LakewardError):
            known |= each.__annotations__
    return tuple(name for name, kind in known.items() if not kind.startswith("ClassVar"))


def _by_code() -> dict[str, type[LakewardError]]:
    return {cls.code: cls for cls in tree()}
