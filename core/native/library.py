"""Where the extension module with all compiled kernels lies, and whether it fits this process.

Its name carries digests of the processor it was compiled for and of the kernels' sources, so that a
stale one, or one copied from another machine, is not found rather than loaded. It ends in a digest
of its own bytes: a torn one could crash the process that maps it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

log = logging.getLogger("strom")

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
    """Of all that the machine code is made from."""
    found = hashlib.sha256()
    for path in [*sources(), *sorted(Path(__file__).parent.glob("*.py"))]:
        found.update(str(path.relative_to(PACKAGE)).encode())
        found.update(path.read_bytes())
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
    """Where it may lie: with the package's other caches, else the user's, if there is a home."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    users = [Path(cache) / "strom"] if os.path.isabs(cache) else []
    return [Path(__file__).parent / "__pycache__", *users]


def file_name(made_from: str | None = None) -> str:
    """For this processor and Python, and these sources; or a pattern: `made_from="*"`."""
    processor = hashlib.sha256(_processor().encode()).hexdigest()[:8]
    return f"{NAME}-{processor}-{made_from or digest()}{EXTENSION_SUFFIXES[0]}"


@lru_cache(maxsize=1)
def load() -> ModuleType | None:
    """The extension for exactly these sources and this processor; None: numba has to do."""
    return None if os.environ.get(SWITCH) in ("numba", "build") else find()


def find() -> ModuleType | None:
    """The first in `folders` that can be loaded; says which could not."""
    name = file_name()
    for folder in folders():
        path = folder / name
        try:
            return load_from(path)
        except FileNotFoundError:
            continue
        except (OSError, ImportError) as error:
            log.warning("%s; make it anew: python -m strom.core.native.build", error)
    return None


def sealed(code: bytes) -> bytes:
    """The bytes of the file: those of the shared object and their digest, which no loader minds."""
    return code + hashlib.sha256(code).digest()


def load_from(path: Path) -> ModuleType:
    """Raises ImportError when it is damaged or does not fit this Python, OSError when it cannot be
    read."""
    data = path.read_bytes()
    size = len(data) - hashlib.sha256().digest_size
    if size < 0 or sealed(data[:size]) != data:
        raise ImportError(f"the kernel library {path} is damaged")
    loader = ExtensionFileLoader(NAME, str(path))
    spec = spec_from_loader(NAME, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
