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
from importlib import import_module
from pathlib import Path
from typing import Any

from .library import NAME, PACKAGE, SWITCH, file_name, folders, load_from, sources


def build() -> Path | None:
    """Compile, link, try, and put in place. None if this machine cannot; says why on stderr."""
    name = file_name()
    for folder in folders():
        if (folder / name).exists():
            return folder / name
    with tempfile.TemporaryDirectory(prefix="strom-kernels-") as scratch:
        made = _link(Path(scratch), _compile(Path(scratch)))
        if made is None:
            return None
        load_from(made)  # An ImportError here names the symbol that a kernel should not use.
        return _install(made, name)


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


def _install(made: Path, name: str) -> Path:
    """Into the first folder that takes it, at once; older ones go."""
    failed: OSError | None = None
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob(f"{NAME}-*"):
                old.unlink()
            waiting = folder / f".{name}.{os.getpid()}"
            waiting.write_bytes(made.read_bytes())
            waiting.replace(folder / name)
            return folder / name
        except OSError as error:
            failed = error
    assert failed is not None
    raise failed


if __name__ == "__main__":
    made_there = build()
    print(made_there or "kernels stay with numba")
    sys.exit(made_there is None)
