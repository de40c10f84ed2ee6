"""No user code is called by `map`, `filter` or what `itertools` has of the kind: a StopIteration
out of it would end the iteration there, and what is left would be lost without a word."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
FOLDERS = ("api", "checkpoint", "connectors", "core", "engine", "operators", "state", "testing")

CALLERS = frozenset(
    {"map", "filter", "starmap", "takewhile", "dropwhile", "filterfalse", "accumulate", "groupby"}
)

OUR_OWN = frozenset(
    {
        "_cache(shape, parallelism, max_parallelism, deal).__getitem__",
        "datetime.time",
        "distinct",
        "itemgetter(index)",
        "math.isfinite",
        "new",
        "operator.is_",
        "pa.array",
        "read",
        "self._gate.finished",
        "table.column",
        "target.column",
        "values.__getitem__",
    }
)
"""What is called and is no function of a module: none of it runs code of users."""


def calls(tree: ast.Module) -> Iterator[ast.expr]:
    """What `map` and its like call in this module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            function = node.func
            ours = isinstance(function, ast.Attribute) and ast.unparse(function.value) not in (
                "itertools",
            )
            name = getattr(function, "id", getattr(function, "attr", None))
            if name in CALLERS and not ours:
                yield node.args[0]


def module_names(tree: ast.Module) -> set[str]:
    """Functions and imports of the module itself."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name) for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_map_and_its_like_call_no_user_code() -> None:
    found = []
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            text = path.read_text()
            if not any(f"{caller}(" in text for caller in CALLERS):
                continue
            tree = ast.parse(text)
            known = module_names(tree) | set(dir(builtins)) | OUR_OWN
            found += [
                f"{path.relative_to(PACKAGE)}:{called.lineno}: {ast.unparse(called)}"
                for called in calls(tree)
                if ast.unparse(called) not in known
            ]
    assert not found, (
        f"if this can be code of users, call it in a loop or a list comprehension: {found}"
    )


def test_the_search_finds_what_it_looks_for() -> None:
    source = "from itertools import starmap\nlist(map(self.call, rows))\nstarmap(f, rows)\n"
    tree = ast.parse(source)
    assert {ast.unparse(called) for called in calls(tree)} == {"self.call", "f"}
    assert "self.call" not in module_names(tree)
