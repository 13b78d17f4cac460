# SPDX-License-Identifier: Apache-2.0
"""Counts what the house style limits, and fails where a count is above its limit in .ci/counts.toml. With --update it
writes today's counts as limits; a limit never goes up that way unless --raise is given too.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
LIMITS = ROOT / ".ci" / "counts.toml"

LONG_FUNCTION, LARGE_CLASS, LARGE_FOLDER, SHORT_MODULE, NAMED_FUNCTION = 60, 25, 20, 40, 10
VAGUE = frozenset(
    ("wanted", "known", "gone", "kept", "found", "given", "own", "whole", "left", "there", "said", "told")
)
DIALECT = re.compile(
    r"^(?:What|Whoever|Whatever|Of|For one)\b|\b(?:what others|is told|are told|was told|is said|was said|goes by|go by"
    r"|anew|nobody|whoever|of ours|in words)\b"
)
"""Docstrings that put English words on another language's syntax."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    path: Path

    @cached_property
    def name(self) -> str:
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    @property
    def head_lines(self) -> int:
        """Licence, docstring and imports: everything above the first other statement."""
        for node in self.tree.body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom):
                return node.lineno - 1
        return self.lines

    @property
    def imports(self) -> Iterator[str]:
        """Imported when the module is: not in functions, not for type checkers alone."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    @property
    def functions(self) -> Iterator[Definition]:
        return (n for n in ast.walk(self.tree) if isinstance(n, Definition))


def count_all() -> dict[str, list[str]]:
    """Count -> what it counts, one text each; of lines and files only their number matters."""
    modules = [Module(p) for p in sorted(SOURCE.rglob("*.py")) if not p.name.endswith("_pb2.py")]  # those are generated
    lines = sum(m.lines for m in modules)
    heads = sum(m.head_lines for m in modules)
    return {
        "lines": ["line"] * lines,
        "files": [m.name for m in modules],
        "head-permille": ["permille"] * round(1000 * heads / lines),
        "short-modules": [m.name for m in modules if m.lines < SHORT_MODULE and m.path.name != "__init__.py"],
        "folder-knots": find_knots(modules),
        "long-functions": [
            f"{m.name}:{f.lineno} {f.name} {_length(f)}"
            for m in modules
            for f in m.functions
            if _length(f) > LONG_FUNCTION
        ],
        "large-classes": [text for m in modules for text in _large_classes(m)],
        "large-folders": [
            f"{folder} {count}"
            for folder, count in sorted(Counter(str(m.path.parent.relative_to(SOURCE)) for m in modules).items())
            if count > LARGE_FOLDER
        ],
        "dialect-docstrings": [text for m in modules for text in _dialect(m)],
        "vague-names": [text for m in modules for text in _vague_names(m)],
    }


# ---- knots -----------------------------------------------------------------------------------------------------------
def find_knots(modules: list[Module]) -> list[str]:
    """In each package: its modules and folders that import each other in a circle."""
    names = {m.name for m in modules}
    edges: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in modules:
        for imported in module.imports:
            target = imported if imported in names else imported.rpartition(".")[0]
            if target in names:
                parts, others = module.name.split("."), target.split(".")
                common = next((i for i, (a, b) in enumerate(zip(parts, others, strict=False)) if a != b), None)
                if common:
                    edges[".".join(parts[:common])][parts[common]].add(others[common])
    return [
        f"{package}: {', '.join(sorted(knot))}"
        for package, graph in sorted(edges.items())
        for knot in find_circles(graph)
    ]


def find_circles(graph: Mapping[str, Set[str]]) -> list[frozenset[str]]:
    def reach(start: str) -> frozenset[str]:
        seen, open_nodes = set[str](), [start]
        while open_nodes:
            for following in graph.get(open_nodes.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    open_nodes.append(following)
        return frozenset(seen)

    reached = {node: reach(node) for node in [*graph]}
    circles = {
        frozenset(n for n in seen if node in reached.get(n, ())) for node, seen in reached.items() if node in seen
    }
    return sorted(circles, key=sorted)


# ---- functions, classes, words ---------------------------------------------------------------------------------------
def _length(function: Definition) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _large_classes(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(n, Definition) for n in node.body)
            if methods > LARGE_CLASS:
                yield f"{module.name} {node.name} {methods}"


def _dialect(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, Definition | ast.ClassDef | ast.Module):
            text = " ".join((ast.get_docstring(node) or "").split())
            if DIALECT.search(text):
                yield f"{module.name}: {text[:80]}"


def _vague_names(module: Module) -> Iterator[str]:
    for function in module.functions:
        if _length(function) > NAMED_FUNCTION:
            bound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            yield from (f"{module.name}:{function.lineno} {name}" for name in sorted(bound & VAGUE))


# ---- limits ----------------------------------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    counts = count_all()
    if shown := next((a for a in arguments if a in counts), None):
        print("\n".join(counts[shown]))
        return 0
    limits = {k: int(v) for k, v in tomllib.loads(LIMITS.read_text()).items()} if LIMITS.exists() else {}
    if "--update" in arguments:
        lowered = {k: min(len(v), limits.get(k, len(v))) for k, v in counts.items()}
        new = {k: len(v) for k, v in counts.items()} if "--raise" in arguments else lowered
        head = "# Limits of .ci/counts.py: they only go down. `make limits` writes lower counts here.\n"
        LIMITS.write_text(head + "".join(f"{name} = {count}\n" for name, count in new.items()))
        return 0
    over = 0
    for name, items in counts.items():
        is_over = len(items) > limits.get(name, 0)
        over += is_over
        words = f" -- ABOVE THE LIMIT; `.ci/counts.py {name}` lists them" if is_over else ""
        print(f"{name:20} {len(items):7,} of {limits.get(name, 0):7,}{words}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
