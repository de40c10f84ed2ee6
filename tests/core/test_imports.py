"""Imports run one way between files, too: `make check` keeps the folders in order, this the files.

An import counts wherever it stands: in a function, under `TYPE_CHECKING`, or as a name in a string
that `preload` or the registry of operators imports.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import strom
from strom.operators import registry, window_choice
from strom.operators.windows.windower import Windower

ROOT = Path(strom.__file__).parent
FOLDERS = ("api", "connectors", "core", "operators", "plan", "rest", "state")

Arrow = tuple[str, str]
"""Two modules, named from the root: the first imports the second."""

KNOWN_CIRCLES: dict[frozenset[str], int] = {}
"""A ceiling, with the imports that run inside. None may grow, none may be added."""

KNOWN_ROUNDS: dict[frozenset[str], int] = {}
"""The same between folders."""


def test_files_import_each_other_in_no_circle() -> None:
    check({*written(), *named()}, KNOWN_CIRCLES)


def test_folders_import_each_other_in_no_circle() -> None:
    between = {(folder(a), folder(b)) for a, b in {*written(), *named()}}
    check({(a, b) for a, b in between if a != b}, KNOWN_ROUNDS)


def check(arrows: set[Arrow], ceiling: dict[frozenset[str], int]) -> None:
    for circle in circles(arrows):
        inside = sum(a in circle and b in circle for a, b in arrows)
        most = max((most for known, most in ceiling.items() if circle <= known), default=0)
        assert inside <= most, f"{inside} imports in a circle: {sorted(circle)}"


def test_a_circle_is_found_wherever_its_imports_stand() -> None:
    there = set(imports("operators.a.one", "if TYPE_CHECKING:\n    from ..b.two import Two\n"))
    back = set(imports("operators.b.two", "def late():\n    from ..a import one\n"))
    assert there == {("operators.a.one", "operators.b.two")}
    assert back == {("operators.b.two", "operators.a")}
    assert circles({*there, ("operators.b.two", "operators.a.one"), ("x", "y")}) == [
        {"operators.a.one", "operators.b.two"}
    ]
    strings = 'KERNELS = ("operators.kernels.gather",)\npreload("state.hash_kernels", *KERNELS)\n'
    assert set(strings_of("operators.joins.base", strings)) == {
        ("operators.joins.base", "operators.kernels.gather"),
        ("operators.joins.base", "state.hash_kernels"),
    }


def test_what_strings_name_is_there() -> None:
    assert {b for _, b in named()} >= {"state.hash_kernels", "operators.window_choice"}
    for _, module in named():
        import_module(f"strom.{module}")
    for module, factory in registry._OPERATORS.values():
        assert callable(getattr(import_module(f"strom.operators.{module}"), factory))
    for module, windower in window_choice.WINDOWERS.values():
        assert issubclass(getattr(import_module(f"strom.operators.{module}"), windower), Windower)


def test_what_strings_name_may_be_imported_there() -> None:
    """As the contracts in setup.cfg say, whose tool sees no strings."""
    for importer, imported in named():
        for source, forbidden in contracts():
            assert not (within(importer, source) and any(within(imported, f) for f in forbidden)), (
                f"{importer} names {imported}, which {source} must not import"
            )


def test_each_package_has_a_row_and_a_contract() -> None:
    """A package that nobody thought of cannot be imported unseen."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"build"}
    rows = re.findall(
        r"^\| ((?:`\w+(?:/\w+)*/`(?:, )?)+) \|", read("ARCHITECTURE.md"), re.MULTILINE
    )
    in_rows = {name.split("/")[0] for row in rows for name in re.findall(r"`(.+?)`", row)}
    assert in_rows == packages
    forbidden_to_core = {one for source, names in contracts() if source == "core" for one in names}
    assert forbidden_to_core == packages - {"core"}
    for package in packages - {"testing", "benchmarks"}:
        inside = [source for source, _ in contracts() if within(source, package)]
        assert inside, f"no contract says what {package} may import"


def read(name: str) -> str:
    return (ROOT / name).read_text()


# --- reading ---------------------------------------------------------------------------------


@cache
def modules() -> dict[str, str]:
    """Text by name, packages' own files left out."""
    paths = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text()
        for path in paths
        if path.name != "__init__.py"
    }


@cache
def written() -> frozenset[Arrow]:
    """Imports between modules, wherever in the file they stand."""
    found = (arrow for name, text in modules().items() for arrow in imports(name, text))
    return frozenset((a, b) for a, b in found if b in modules())


@cache
def named() -> frozenset[Arrow]:
    """What is imported by a name in a string: whoever says so imports it."""
    found = {arrow for name, text in modules().items() for arrow in strings_of(name, text)}
    opened = {module for module, _ in registry._OPERATORS.values()}
    found |= {("operators.registry", f"operators.{module}") for module in opened}
    windowers = {module for module, _ in window_choice.WINDOWERS.values()}
    found |= {("operators.window_choice", f"operators.{module}") for module in windowers}
    return frozenset(found)


def imports(name: str, text: str) -> Iterator[Arrow]:
    package = name.split(".")[:-1]
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            start = package[: len(package) - node.level + 1]
            base = ".".join([*start, *([node.module] if node.module else [])])
        elif node.module and node.module.startswith("strom."):
            base = node.module.removeprefix("strom.")
        else:
            continue
        inside = {f"{base}.{alias.name}" for alias in node.names} & modules().keys()
        yield from ((name, module) for module in inside or {base})


def strings_of(name: str, text: str) -> Iterator[Arrow]:
    """Modules of this package that strings of a module with `preload` name."""
    if "preload(" not in text and "COLUMN_STATE = " not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            first, _, rest = node.value.partition(".")
            if first in FOLDERS and rest.replace(".", "").isidentifier():
                yield name, node.value


def folder(module: str) -> str:
    """The package of a module; a module that stands beside packages is one of its own."""
    package = module.rpartition(".")[0]
    return module if package in ("api", "operators", "state", "state.rocks") else package


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def contracts() -> list[tuple[str, list[str]]]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    kept = [setup[name] for name in setup.sections() if name.startswith("importlinter:contract:")]
    return [
        (source, modules_in(one["forbidden_modules"]))
        for one in kept
        if one["type"] == "forbidden"
        for source in modules_in(one["source_modules"])
    ]


def modules_in(text: str) -> list[str]:
    return [name.removeprefix("strom.") for name in text.split()]


# --- circles ---------------------------------------------------------------------------------


def circles(arrows: set[Arrow]) -> list[set[str]]:
    """Groups of several that reach each other."""
    targets: dict[str, set[str]] = {}
    for a, b in arrows:
        targets.setdefault(a, set()).add(b)
    reach = {start: reached(start, targets) for start in targets}
    found: list[set[str]] = []
    for start in sorted(targets):
        group = {one for one in reach[start] if start in reach.get(one, ())}
        if group and group not in found:
            found.append(group)
    return found


def reached(start: str, targets: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(targets[start])
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left.extend(targets.get(one, ()))
    return seen
