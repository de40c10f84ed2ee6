"""Fetch the libraries of the dashboard from npm into `dashboard/static/vendor`: `make vendor`.

The files are committed, so that neither a wheel nor a test needs npm. A package whose integrity is
not the one below is refused. Browsers find no module by a bare name, so that one import of preact's
hooks is written as a path; nothing else is changed.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

INTO = Path(__file__).resolve().parents[1] / "dashboard" / "static" / "vendor"


@dataclass(frozen=True)
class Library:
    """A package of npm at one version. `files`: path in the package, name here."""

    name: str
    version: str
    integrity: str
    files: dict[str, str]


LIBRARIES = (
    Library(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"},
    ),
    Library(
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.module.js": "htm.js"},
    ),
    Library(
        "uplot",
        "1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"},
    ),
    Library(
        "@dagrejs/dagre",
        "3.1.3",
        "sha512-X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==",
        {"dist/dagre.esm.js": "dagre.js"},
    ),
)


def main() -> int:
    INTO.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="strom-vendor-") as scratch:
        for library in LIBRARIES:
            fetch(library, Path(scratch))
    return 0


def fetch(library: Library, scratch: Path) -> None:
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{library.name}@{library.version}"],
        cwd=scratch,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    package = scratch / done.stdout.split()[-1]
    digest = hashlib.sha512(package.read_bytes()).digest()
    found = f"sha512-{base64.b64encode(digest).decode()}"
    if found != library.integrity:
        raise SystemExit(f"{library.name} {library.version} is {found}, not {library.integrity}")
    with tarfile.open(package) as contents:
        for inside, name in library.files.items():
            _write(name, _text(contents, inside))
        label = library.name.rpartition("/")[2]
        _write(f"{label}.LICENSE.txt", _text(contents, "LICENSE"))
    print(f"{library.name} {library.version}")


def _text(contents: tarfile.TarFile, inside: str) -> str:
    member = contents.extractfile(f"package/{inside}")
    assert member is not None, inside
    return member.read().decode()


def _write(name: str, text: str) -> None:
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    kept = "\n".join(lines).strip() + "\n"
    if name == "preact-hooks.js":
        kept = kept.replace('from"preact"', 'from"./preact.js"')
        assert './preact.js"' in kept
    (INTO / name).write_text(kept, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
