"""Where the extension module with all compiled kernels lies, and whether it fits this process.

Its name carries a digest of the kernels' sources and of the processor it was compiled for, so that
a stale one, or one copied from another machine, is not found rather than loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[2]

PATTERNS = ("state/*_kernels.py", "connectors/*/*_kernels.py", "operators/kernels/*.py")
"""Modules that may define kernels, and everything that these call."""

NAME = "strom_kernels"

SWITCH = "STROM_KERNELS"
"""Environment variable: `numba` never uses the extension; `build` is set while it is made."""


def sources() -> list[Path]:
    """The kernels' modules, in a fixed order."""
    return sorted(path for pattern in PATTERNS for path in PACKAGE.glob(pattern))


def digest() -> str:
    """Of all that the machine code depends on."""
    found = hashlib.sha256()
    for path in [*sources(), *sorted(Path(__file__).parent.glob("*.py"))]:
        found.update(str(path.relative_to(PACKAGE)).encode())
        found.update(path.read_bytes())
    found.update(_processor().encode())
    return found.hexdigest()[:16]


def _processor() -> str:
    """The instruction set: kernels use all of it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            head = file.read(16384)
    except OSError:
        head = platform.processor()
    known = ("flags", "Features", "model name", "CPU part")
    lines = [line for line in head.split("\n\n")[0].splitlines() if line.startswith(known)]
    return "\n".join([platform.machine(), *lines])


def folders() -> list[Path]:
    """Where it may lie: with the package's other caches, else the user's."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return [Path(__file__).parent / "__pycache__", Path(home) / "strom"]


def file_name() -> str:
    return f"{NAME}-{digest()}{EXTENSION_SUFFIXES[0]}"


@lru_cache(maxsize=1)
def load() -> ModuleType | None:
    """The extension for exactly these sources and this processor; None: numba has to do."""
    if os.environ.get(SWITCH) in ("numba", "build"):
        return None
    name = file_name()
    for folder in folders():
        path = folder / name
        if path.exists():
            return load_from(path)
    return None


def load_from(path: Path) -> ModuleType:
    """Raises ImportError when it does not fit this Python."""
    loader = ExtensionFileLoader(NAME, str(path))
    spec = spec_from_loader(NAME, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
