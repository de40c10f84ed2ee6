"""Whether the modules that a job's Python files hold are those that this process has.

A process has one module of a name. A job on the local host, which runs in the program's process,
would get the one that was imported first, whichever file it gives. Of a folder or an archive only
what an earlier job brought is looked at: much may lie there that no function imports.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from ...core.errors import ConfigurationError
from .shipped_code import importable

_brought: set[str] = set()
"""What earlier jobs had put on the path of this process."""


def check_modules(python_files: Sequence[str]) -> None:
    """Called with the files of each local job before it starts. ConfigurationError if a module of
    one of them has been imported from elsewhere."""
    for path in python_files:
        for name, place in _modules_in(Path(os.path.realpath(path))):
            module = sys.modules.get(name)
            origin = None if module is None else _origin(module)
            if origin is None or origin.is_relative_to(place):
                continue
            if path.endswith(".py") or any(origin.is_relative_to(one) for one in _brought):
                raise ConfigurationError(
                    f"add_python_file: module '{name}' of {path} has been imported from {origin} "
                    "in this process, which keeps the first it imports: run the job in a process "
                    "of its own, on Ray, or give one of the two another name"
                )
    _brought.update(os.path.realpath(importable(path)) for path in python_files)


def _modules_in(path: Path) -> Iterator[tuple[str, Path]]:
    """Names of modules and packages that can be imported of it, and where each is."""
    if path.is_dir():
        names = [(one.name, one.is_dir() and any(one.glob("*.py"))) for one in path.iterdir()]
        yield from ((name, path / file) for name, file in _names(names))
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            parts = [name.split("/") for name in archive.namelist() if name.endswith(".py")]
        yield from ((name, path) for name, _ in _names((first, bool(r)) for first, *r in parts))
    else:
        yield from ((name, path) for name, _ in _names([(path.name, False)]))


def _names(files: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    """Modules of files or folders by name, and whether it is a folder with modules in it."""
    for file, is_package in files:
        if is_package:
            yield file, file
        elif file.endswith(".py"):
            yield file.removesuffix(".py"), file


def _origin(module: ModuleType) -> Path | None:
    """The file, or of a package without one its folder; None: it has neither."""
    found = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return Path(os.path.realpath(found)) if isinstance(found, str) else None
