"""Packages whose names load their modules on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[list[str], Callable[[str], object]]:
    """`__all__` and `__getattr__` of a package. `modules`: module of the package -> its names."""
    home = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> object:
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(f"{package}.{module}"), name)

    return sorted(home), load
