"""Where the extension module with all compiled kernels lies, and whether it fits this process.

Its name carries digests of the processor it was compiled for and of the kernels' sources, so that a
stale one, or one copied from another machine, is not found rather than loaded. It ends in a digest
of its own bytes: a torn one could crash the process that maps it.

A wheel brings some that are made for a level of instructions instead (`LEVELS`), of which the
highest that this processor has is loaded, unless there is one for the processor itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from collections.abc import Iterable
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

SHIPPED = "shipped"
"""The folder, beside this file, of what a wheel brings. A checkout has none."""

LEVELS = {
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave cx16 lahf_lm popcnt sse4_1 sse4_2 "
    "ssse3",
    "x86-64": "",
    "generic": "",
}
"""As LLVM names them, the best first, and the flags in /proc/cpuinfo that each needs. `generic`: of
processors that are not x86."""

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


def levels(machine: str | None = None, flags: str | None = None) -> list[str]:
    """Those that this processor has, the best first. `flags`: as /proc/cpuinfo has them.

    >>> levels("x86_64", "sse2 avx"), levels("aarch64", "fp asimd")
    (['x86-64'], ['generic'])
    """
    if (machine or platform.machine()) not in ("x86_64", "AMD64"):
        return ["generic"]
    if flags is None:
        lines = [line for line in _processor().splitlines() if line.startswith("flags")]
        flags = lines[0].partition(":")[2] if lines else ""
    has = set(flags.split())
    return [one for one, needs in LEVELS.items() if one != "generic" and has >= set(needs.split())]


def shipped_name(level: str) -> str:
    """What a wheel calls the library for a level, made of these sources."""
    return f"{NAME}-{level}-{digest()}{EXTENSION_SUFFIXES[0]}"


def shipped() -> list[Path]:
    """Where libraries of a wheel would be that this processor can run, the best first."""
    folder = Path(__file__).parent / SHIPPED
    return [folder / shipped_name(level) for level in levels()] if folder.is_dir() else []


@lru_cache(maxsize=1)
def load() -> ModuleType | None:
    """The extension for exactly these sources and this processor, or what it has of it; None: numba
    has to do, which is told once in each process."""
    if os.environ.get(SWITCH) in ("numba", "build"):
        return None
    found = find()
    if found is None:
        log.warning(
            "no compiled kernels are there for this Python and processor: numba compiles them in "
            "this process, which costs some 100 MB and half a second. A wheel of strom for this "
            "platform has them, or with a C compiler: python -m strom.core.native.build"
        )
    return found


def find() -> ModuleType | None:
    """The one for this processor, else a wheel's; the first that can be loaded."""
    return find_own() or _first(shipped())


def find_own() -> ModuleType | None:
    """The one for this very processor, in the first of `folders` that has it."""
    name = file_name()
    return _first(folder / name for folder in folders())


def _first(paths: Iterable[Path]) -> ModuleType | None:
    """The first that can be loaded; says which could not."""
    for path in paths:
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
