"""`import strom`: what it offers and what it costs."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import ray  # noqa: F401  (some names need it, and not the stand-in of unit tests)
import strom


def test_every_public_name_resolves() -> None:
    assert "StreamExecutionEnvironment" in strom.__all__
    for name in strom.__all__:
        assert getattr(strom, name) is not None
    assert set(strom.__all__) <= set(dir(strom))


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse(Path(strom.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == strom._MODULE_OF


MIRRORS = ("common", "datastream", "datastream.connectors", "datastream.formats", "metrics")


@pytest.mark.parametrize("package", MIRRORS)
def test_type_checkers_see_the_names_of_packages_as_programs_do(package: str) -> None:
    module = import_module(f"strom.{package}")
    block = next(
        n for n in ast.parse(Path(module.__file__).read_text()).body if isinstance(n, ast.If)
    )
    seen = [
        (node.module, alias.name, alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    loaded = [(of, name, name) for of, names in module._NAMES.items() for name in names.split()]
    assert sorted(seen) == sorted(loaded)
    assert len(set(seen)) == len(seen)
    assert module.__all__ == sorted(name for _, name, _ in loaded)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_every_module_with_pyflinks_names_says_them_for_others_to_import() -> None:
    root = Path(strom.__file__).parent
    tops = {package.partition(".")[0] for package in MIRRORS}
    files = [file for top in sorted(tops) for file in (root / top).rglob("*.py")]
    assert {file.parent.relative_to(root).as_posix().replace("/", ".") for file in files} == set(
        MIRRORS
    )
    for file in files:
        if file.name != "__init__.py":
            _, *imports = ast.parse(file.read_text()).body
            assert all(isinstance(node, ast.ImportFrom) for node in imports), file
            assert all(alias.name == alias.asname for node in imports for alias in node.names), file


def test_every_package_is_in_the_distribution() -> None:
    root = Path(strom.__file__).parent
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg")
    tops = [path for path in root.glob("*/__init__.py") if path.parent.name != "build"]
    folders = {file.parent for top in tops for file in top.parent.rglob("__init__.py")}
    packages = {".".join(("strom", *folder.relative_to(root).parts)) for folder in folders}
    assert set(setup["options"]["packages"].split()) == {"strom", *packages}


def test_objects_can_be_told_by_their_public_classes() -> None:
    """`isinstance(ctx.timer_service(), TimerService)`, as in PyFlink."""
    classes = [value for name in strom.__all__ if isinstance(value := getattr(strom, name), type)]
    protocols = [one for one in classes if getattr(one, "_is_protocol", False)]
    assert strom.TimerService in protocols
    assert [one for one in protocols if not getattr(one, "_is_runtime_protocol", False)] == []


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        strom.nonsense  # noqa: B018


def test_importing_strom_and_writing_a_program_loads_nothing_heavy() -> None:
    program = """
import sys, strom
early = {"pyarrow", "numpy", "polars", "ray"} & set(sys.modules)
env = strom.StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(abs).key_by(abs).sum(0).print()
env.get_job_graph()
late = {"polars", "numba", "ray", "pandas", "pyspark"} & set(sys.modules)
print(sorted(early), sorted(late))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] []\n"
