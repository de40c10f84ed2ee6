"""A program's own Python files, brought to the processes that run its job.

Packed where the program runs, unpacked in each process of the job before anything of the program is
unpickled there. What was unpacked stays on the machine, under a name made of its content, and is
used again.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from ...core.errors import ConfigurationError
from ...core.private_folders import private_folder

ARCHIVES: Final = (".zip", ".whl", ".egg")
"""Files that Python imports from as they are."""


@dataclass(frozen=True)
class PackedCode:
    """One file, archive or folder, by name; `folder`: whether `data` is a zip of one."""

    name: str
    data: bytes
    folder: bool = False

    @property
    def digest(self) -> str:
        return blake2b(self.data, digest_size=16, person=b"strom-code").hexdigest()


def pack(paths: Iterable[str]) -> tuple[PackedCode, ...]:
    """ConfigurationError if one cannot be read."""
    try:
        return tuple(_pack(Path(path)) for path in paths)
    except OSError as error:
        raise ConfigurationError(f"a Python file cannot be sent to the tasks: {error}") from None


def _pack(path: Path) -> PackedCode:
    if not path.is_dir():
        return PackedCode(path.name, path.read_bytes())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                # No times: the same content is the same archive.
                inside = zipfile.ZipInfo(file.relative_to(path).as_posix())
                archive.writestr(inside, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return PackedCode(path.name, buffer.getvalue(), folder=True)


def unpack(code: Sequence[PackedCode]) -> None:
    """Make it importable in this process, ahead of what is installed; the last comes first."""
    put_on_path(_entry(one, _unpacked(one)) for one in code)


def put_on_path(entries: Iterable[str]) -> None:
    """The last comes first, also if it was there before."""
    for entry in entries:
        if entry in sys.path:
            sys.path.remove(entry)
        sys.path.insert(0, entry)


def put_behind_path(entry: str) -> None:
    """After all else, as modules beside the program are where the path has the working directory,
    which functions may have another of."""
    if entry not in sys.path:
        sys.path.append(entry)


def importable(path: str) -> str:
    """What has to be on the path for this file, archive or folder of this machine."""
    whole = Path(path).absolute()
    return str(whole if whole.is_dir() or whole.suffix in ARCHIVES else whole.parent)


def _entry(one: PackedCode, folder: Path) -> str:
    return str(folder / one.name) if Path(one.name).suffix in ARCHIVES else str(folder)


def _unpacked(one: PackedCode) -> Path:
    """The folder with its content; another process may be making it at the same time."""
    code = Path(tempfile.gettempdir()) / f"strom-code-{os.getuid()}"
    root = private_folder(code, "Python files")
    folder = root / f"{one.digest}-{one.name}"
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=root))
        if one.folder:
            with zipfile.ZipFile(io.BytesIO(one.data)) as archive:
                archive.extractall(made)
        else:
            (made / one.name).write_bytes(one.data)
        try:
            made.rename(folder)
        except OSError:  # somebody was faster
            _remove(made)
    return folder


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
