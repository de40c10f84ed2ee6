"""Make the extension module: `python -m strom.core.native.build`.

Every kernel is compiled by numba, its LLVM code written as a position-independent object file, and
linked with generated C (`glue`) that hands Python's arguments over. Needs a C compiler and Python's
headers; without them nothing is made, and kernels go on being compiled by numba in each process.
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
    NAME,
    PACKAGE,
    SWITCH,
    file_name,
    find,
    folders,
    load_from,
    sealed,
    sources,
)


def build() -> Path | None:
    """Compile, link, try, and put in place. None if this machine cannot; says why on stderr."""
    found = find()
    if found is not None:
        assert found.__file__ is not None
        return Path(found.__file__)
    with tempfile.TemporaryDirectory(prefix="strom-kernels-") as scratch:
        made = _link(Path(scratch), _compile(Path(scratch)))
        return None if made is None else install(sealed(made.read_bytes()))


def _compile(scratch: Path) -> list[Path]:
    """The object files of all kernels and the C file that joins them."""
    os.environ[SWITCH] = "build"
    from . import compiler, glue

    assert __package__ is not None
    root = __package__.rsplit(".", 2)[0]
    for path in sources():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        import_module(".".join([root, *(p for p in parts if p != "__init__")]))
    machine = _target_machine()
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


def _target_machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
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


if __name__ == "__main__":
    made_there = build()
    print(made_there or "kernels stay with numba")
    sys.exit(made_there is None)
