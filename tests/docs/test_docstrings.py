"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import strom

ROOT = Path(strom.__file__).parent
PACKAGES = sorted(path.parent for path in ROOT.glob("*/__init__.py"))


def modules_with_examples() -> list[str]:
    """Dotted names of strom's modules whose text has a doctest."""
    paths = [ROOT / "__init__.py", *(p for folder in PACKAGES for p in folder.rglob("*.py"))]
    return [_name(path) for path in sorted(paths) if ">>> " in path.read_text()]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("strom", *(part for part in parts if part != "__init__")))


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0, f"{name} has examples that no docstring holds"
    assert result.failed == 0


def test_examples_are_found() -> None:
    assert {"strom.core.row", "strom.api.types.type_info", "strom.api.streams.data_stream"} <= set(
        modules_with_examples()
    )
