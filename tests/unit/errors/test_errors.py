# SPDX-License-Identifier: Apache-2.0
"""Every error travels over the wire and through pickle, and comes back as the same type with the same facts."""

from __future__ import annotations

import ast
import json
import pickle
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from lakeward import errors
from lakeward.errors import DiskFull, LakewardError, LeftBehind, RemoteError, fact_names, from_wire, to_wire, tree

CLASSES = sorted(tree(), key=lambda c: c.__name__)


def make(cls: type[LakewardError]) -> LakewardError:
    """One of each class, with a fact of the right type in every field."""
    examples: dict[Any, Any] = {str: "some {text}", int: 7, float: 1.5, bool: True, str | None: "nearest"}
    hints = get_type_hints(cls)
    names = fact_names(cls)
    return cls(**{name: examples[hints[name]] for name in names})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
class TestEveryClass:
    def test_comes_back_from_json_as_itself(self, cls: type[LakewardError]) -> None:
        error = make(cls)
        back = from_wire(json.loads(json.dumps(to_wire(error))))
        assert type(back) is cls
        assert back.facts == error.facts
        assert str(back) == str(error)

    def test_comes_back_from_pickle_as_itself(self, cls: type[LakewardError]) -> None:
        error = make(cls)
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is cls
        assert back.facts == error.facts

    def test_has_a_code_of_its_own_and_words_for_people(self, cls: type[LakewardError]) -> None:
        error = make(cls)
        assert [c for c in CLASSES if c.code == cls.code] == [cls]
        assert all(str(value) in str(error) for name, value in error.facts.items() if f"{{{name}}}" in cls.template)
        assert 400 <= cls.http_status < 600
        assert repr(error).startswith(cls.__name__)

    def test_is_drawn_in_the_tree(self, cls: type[LakewardError]) -> None:
        assert cls.__name__ in (errors.__doc__ or "")


def test_an_error_has_its_facts_and_no_others() -> None:
    """What mypy cannot see: facts that come over the wire."""
    facts: dict[str, Any] = {"table": "t", "head": "1", "ours": "2"}
    with pytest.raises(TypeError, match="wants the fact ours"):
        errors.LakeRolledBack(**{k: v for k, v in facts.items() if k != "ours"})
    with pytest.raises(TypeError, match="has no fact theirs"):
        errors.LakeRolledBack(**{**facts, "theirs": "3"})


def test_a_retryable_error_says_so_on_the_wire() -> None:
    assert to_wire(errors.LakeUnavailable(lake="l", what="w", reason="r"))["retryable"] is True
    assert to_wire(errors.LakeRolledBack(table="t", head="1", ours="2"))["retryable"] is False


def test_an_unknown_code_keeps_its_message() -> None:
    back = from_wire({"code": "from-the-future", "message": "something new", "facts": {}})
    assert isinstance(back, RemoteError)
    assert "from-the-future" in str(back)
    assert "something new" in str(back)


def test_a_fact_from_a_newer_peer_is_dropped() -> None:
    wire = to_wire(errors.TableNotFound(table="db.t"))
    back = from_wire({**wire, "facts": {**wire["facts"], "hint": "new in 2.0"}})
    assert isinstance(back, errors.TableNotFound)
    assert back.table == "db.t"


@pytest.mark.parametrize(
    "body", [{}, {"code": "table-not-found"}, {"code": "table-not-found", "facts": {}}, {"code": 3, "facts": []}]
)
def test_a_body_that_does_not_fit_is_a_remote_error(body: dict[str, Any]) -> None:
    assert isinstance(from_wire(body), RemoteError)


def test_imports_nothing_of_ours() -> None:
    for path in sorted(Path(errors.__file__).parent.glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        assert not [n for n in imported if n.startswith("lakeward") and not n.startswith("lakeward.errors.")], path


def test_a_full_disk_names_the_reserve_where_it_is_the_reason() -> None:
    kept = DiskFull(where="/data", free_bytes=5_000, reserve_bytes=256_000_000)
    assert kept.message.startswith("/data: 5,000 bytes are free and 256,000,000 are kept in reserve; free some space")
    refused = DiskFull(where="/data", free_bytes=0, reserve_bytes=0)
    assert refused.message.startswith("/data: 0 bytes are free; free some space")


def test_a_side_that_was_left_at_once_waited_for_nothing() -> None:
    facts = {"table": "shop.t", "side": "lake", "split": "log 0 [0, 5)"}
    assert "took nothing for 3 s" in LeftBehind(**facts, silent_s=3).message
    assert "for 0 s" not in LeftBehind(**facts, silent_s=0).message
