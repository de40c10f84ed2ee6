"""Archives unpacked where a job runs: zip (.whl, .jar, .egg) and tar, compressed or not.

They come from users, so nothing of them may get outside the folder they are unpacked into: no
absolute names, no `..`, no links that lead out. Tars go through the standard library's data
filter; zips, for which there is none, are looked at entry by entry, and their links are made last.
Links are looked at again when all of them are there.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from ...core.errors import ConfigurationError

_SAFE: int = 0o755
"""Permissions that an entry may have: nobody else writes."""


def unpack_archive(file: IO[bytes], name: str, into: Path) -> None:
    """Unpack `file`, which errors call `name`, into an empty folder. ConfigurationError if it is
    no archive, is damaged or leads out of the folder; something may have been unpacked then."""
    try:
        if is_tar(file, name):
            _untar(file, into)
        else:
            _unzip(file, into)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise _unusable(name, error) from error
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise _unusable(name, error) from error


def is_tar(file: IO[bytes], name: str) -> bool:
    """Whether it is a tar, and not a zip; ConfigurationError if it is neither. By what is in it: a
    tar whose last file is a zip looks like one from its end."""
    tar = _is(tarfile.is_tarfile, file)
    if not tar and not _is(zipfile.is_zipfile, file):
        raise ConfigurationError(f"archive {name} is neither a zip nor a tar")
    return tar


def _unusable(name: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"archive {name} cannot be unpacked: {error}; make it anew")


def _is(kind: object, file: IO[bytes]) -> bool:
    file.seek(0)
    found = bool(kind(file))  # type: ignore[operator]
    file.seek(0)
    return found


def _untar(file: IO[bytes], into: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise ValueError("this Python is too old to unpack a tar safely: take 3.11.4 or later")
    with tarfile.open(fileobj=file) as archive:
        archive.extractall(into, filter="data")
        while archive.fileobj is not None and archive.fileobj.read(1 << 20):
            pass  # what is compressed is compared with its checksum at the very end
    _check_links([path for path in into.rglob("*") if path.is_symlink()], into)


def _unzip(file: IO[bytes], into: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        links = []
        for entry in archive.infolist():
            path = PurePosixPath(entry.filename)
            if path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
                raise ValueError(f"its entry '{entry.filename}' leads out of the folder")
            mode = entry.external_attr >> 16
            if stat.S_ISLNK(mode):
                links.append((into / path, archive.read(entry).decode()))
                continue
            made = archive.extract(entry, into)
            if stat.S_ISREG(mode):
                os.chmod(made, (mode | stat.S_IRUSR | stat.S_IWUSR) & _SAFE)
    for link, target in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    _check_links([link for link, _ in links], into)


def _check_links(links: list[Path], into: Path) -> None:
    """When all are there: where one leads may depend on another."""
    inside = os.path.realpath(into)
    wrong = []
    for link in links:
        leads = os.path.realpath(link)
        if os.path.isabs(os.readlink(link)) or os.path.commonpath([inside, leads]) != inside:
            wrong.append(link)
    for link in wrong:
        link.unlink()
    if wrong:
        raise ValueError(f"its link '{wrong[0].relative_to(into)}' leads out of the folder")
