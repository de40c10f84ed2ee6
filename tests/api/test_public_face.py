"""`import strom`: what it offers and what it costs."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest
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


def test_every_package_is_in_the_distribution() -> None:
    root = Path(strom.__file__).parent
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg")
    tops = [path for path in root.glob("*/__init__.py") if path.parent.name != "build"]
    folders = {file.parent for top in tops for file in top.parent.rglob("__init__.py")}
    packages = {".".join(("strom", *folder.relative_to(root).parts)) for folder in folders}
    assert set(setup["options"]["packages"].split()) == {"strom", *packages}


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
