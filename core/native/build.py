"""Make the extension module: `python -m strom.core.native.build`.

Every kernel is compiled by numba, its LLVM code written as a position-independent object file, and
linked with generated C (`glue`) that hands Python's arguments over. Needs a C compiler and Python's
headers; without them nothing is made, and kernels go on being compiled by numba in each process.

`python -m strom.core.native.build --shipped FOLDER` makes those of a wheel instead, one for each
level of instructions of this machine's kind of processor, whatever this very one has.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from .library import (
    LEVELS,
    NAME,
    PACKAGE,
    SWITCH,
    file_name,
    find_own,
    folders,
    levels,
    load_from,
    sealed,
    shipped_name,
    sources,
)


def build() -> Path | None:
    """Compile, link, try, and put in place. None if this machine cannot; says why on stderr."""
    found = find_own()
    if found is not None:
        assert found.__file__ is not None
        return Path(found.__file__)
    with tempfile.TemporaryDirectory(prefix="strom-kernels-") as scratch:
        made = _link(Path(scratch), _compile(Path(scratch)))
        return None if made is None else install(sealed(made.read_bytes()))


def build_shipped(folder: Path) -> list[Path] | None:
    """One library in `folder` for each level, but for those that are there. None if this machine
    cannot.

    Each is made by a process of its own: numba is told by its environment what to compile for."""
    generic = levels(flags="") == ["generic"]
    wanted = [one for one in LEVELS if (one == "generic") == generic]
    command = [sys.executable, "-P", "-m", __spec__.name, "--level"]
    making = []
    for level in wanted:
        told = {**os.environ, "NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
        making.append(subprocess.Popen([*command, level, str(folder)], env=told))
    codes = [process.wait() for process in making]
    if any(codes):
        return None
    return [folder / shipped_name(level) for level in wanted]


def build_level(level: str, folder: Path) -> Path | None:
    """One of them. numba's environment is that of the level already."""
    path = folder / shipped_name(level)
    with suppress(OSError, ImportError):
        load_from(path)
        return path
    with tempfile.TemporaryDirectory(prefix="strom-kernels-") as scratch:
        made = _link(Path(scratch), _compile(Path(scratch), level))
        if made is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        waiting = folder / f".{path.name}.{os.getpid()}"
        waiting.write_bytes(sealed(made.read_bytes()))
        load_from(waiting)  # ImportError: also where a kernel uses a symbol it should not.
        return waiting.replace(path)


def _compile(scratch: Path, level: str | None = None) -> list[Path]:
    """The object files of all kernels and the C file that joins them. `level`: not for this very
    processor."""
    os.environ[SWITCH] = "build"
    from . import compiler, glue

    assert __package__ is not None
    root = __package__.rsplit(".", 2)[0]
    for path in sources():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        import_module(".".join([root, *(p for p in parts if p != "__init__")]))
    machine = _target_machine(level)
    files: list[Path] = []
    kernels: list[glue.Exported] = []
    for kernel in compiler.COMPILED:
        symbols = []
        for result in kernel.dispatcher.overloads.values():
            symbols.append(str(result.fndesc.llvm_func_name))
            code = result.library.get_llvm_str()
            if re.search(r"call .*@NRT_\w*[aA]lloc", code):
                raise SystemExit(
                    f"kernel {kernel.name} allocates memory: give it its arrays as arguments"
                )
            files.append(scratch / f"{len(files)}.o")
            files[-1].write_bytes(_object(machine, code))
        kernels.append(glue.Exported(kernel.name, kernel.signatures, tuple(symbols)))
    joined = scratch / "glue.c"
    joined.write_text(glue.source(NAME, kernels))
    return [joined, *files]


def _target_machine(level: str | None) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=level or llvm.get_host_cpu_name(),
        features="" if level else llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
    )


def _object(machine: Any, code: str) -> bytes:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(code)
    module.verify()
    emitted: bytes = machine.emit_object(module)
    return emitted


def _link(scratch: Path, files: list[Path]) -> Path | None:
    """The extension module; None without a compiler or headers."""
    made = scratch / f"{NAME}.so"
    include = sysconfig.get_paths()["include"]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    command = [*compiler, "-O2", "-shared", "-fPIC", f"-I{include}", "-o", str(made)]
    try:
        subprocess.run(
            [*command, *map(str, files), "-lm"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        print(
            "no kernel library was made (numba will compile in each process, which costs some "
            f"100 MB and half a second there): {said.strip()[:2000]}",
            file=sys.stderr,
        )
        return None
    return made


def install(library: bytes) -> Path | None:
    """Into the first folder from which it can be loaded, at once; older ones for this processor
    and Python go. None, and the reasons on stderr, if there is no such folder."""
    name = file_name()
    for folder in folders():
        waiting = folder / f".{name}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            waiting.write_bytes(library)
            load_from(waiting)  # ImportError: also where a kernel uses a symbol it should not.
            waiting.replace(folder / name)
        except (OSError, ImportError) as error:
            print(f"no kernel library in {folder}: {error}", file=sys.stderr)
            with suppress(OSError):
                waiting.unlink(missing_ok=True)
            continue
        for old in folder.glob(file_name("*")):
            if old.name != name:
                old.unlink(missing_ok=True)
        return folder / name
    return None


def main(arguments: list[str]) -> int:
    """The exit code."""
    made: list[Path] | None
    match arguments:
        case []:
            one = build()
            made = None if one is None else [one]
        case ["--shipped", folder]:
            made = build_shipped(Path(folder))
        case ["--level", level, folder]:
            return build_level(level, Path(folder)) is None
        case _:
            print("usage: python -m strom.core.native.build [--shipped FOLDER]", file=sys.stderr)
            return 2
    if made is None:
        print("kernels stay with numba")
        return 1
    for path in made:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
