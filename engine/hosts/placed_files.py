"""Archives and cached files on their way: read where the program is, put down where tasks run.

On the local host they are taken from where they are. On Ray their contents travel through the
object store, once per machine; what is named by a URL each machine reads for itself.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ...core.errors import ConfigurationError
from ...core.failure_text import described
from ...core.job_files import CACHE, WORK, CachedFile, JobFiles
from .archives import is_tar, unpack_archive
from .job_folder import JobFolder


@dataclass(frozen=True)
class Content:
    """A file's bytes, or those of a tar of a folder."""

    data: pa.Buffer
    folder: bool = False
    executable: bool = False


def contents_of(files: JobFiles) -> dict[str, Content]:
    """All that has to travel, by path. ConfigurationError if something cannot be read, or an
    archive is none."""
    for archive in files.archives:
        with _opened(archive.path, None) as file:
            is_tar(file, archive.path)
    paths = [one.path for one in files.archives]
    paths += [one.path for one in files.cached if not one.remote]
    return {path: _read(Path(path)) for path in paths}


def _read(path: Path) -> Content:
    try:
        if path.is_dir():
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
                archive.add(path, arcname=".")
            return Content(pa.py_buffer(buffer.getbuffer()), folder=True)
        executable = os.access(path, os.X_OK)
        if not path.stat().st_size:
            return Content(pa.py_buffer(b""), executable=executable)
        with pa.memory_map(str(path)) as mapped:
            return Content(mapped.read_buffer(), executable=executable)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be sent to the tasks: {error}") from None


@contextmanager
def files_at_hand(job_id: str, files: JobFiles) -> Iterator[None]:
    """For a job that runs in the caller's thread: its files are there meanwhile, but not by
    relative paths."""
    if not files.any_placed:
        yield
        return
    folder = JobFolder(job_id)
    folder.enter(lambda made: place(files, None, made))
    try:
        yield
    finally:
        folder.leave()


def place(files: JobFiles, contents: Callable[[str], Content] | None, folder: Path) -> list[str]:
    """Put everything below `folder`, as `core/job_files` says. `contents`: what has travelled,
    by path; None: all is on this machine. Returns the names in the working directory.
    ConfigurationError names the file that could not be placed."""
    (folder / WORK).mkdir()
    (folder / CACHE).mkdir()
    for archive in files.archives:
        into = folder / WORK / archive.target
        into.mkdir(parents=True, exist_ok=True)
        with _opened(archive.path, contents) as file:
            unpack_archive(file, archive.path, into)
    for n, cached in enumerate(files.cached):
        to = folder / CACHE / str(n) / cached.own_name
        to.parent.mkdir()
        try:
            _put(cached, contents, to)
        except Exception as error:  # filesystems of clouds raise whatever they like
            raise ConfigurationError(
                f"cached file '{cached.name}' cannot be brought here from {cached.path}: "
                f"{described(error)}"
            ) from error
        if cached.executable and to.is_file():
            to.chmod(to.stat().st_mode | 0o500)
    return sorted(os.listdir(folder / WORK))


def _opened(path: str, contents: Callable[[str], Content] | None) -> Any:
    if contents is not None:
        return closing(pa.BufferReader(contents(path).data))
    try:
        return open(path, "rb")
    except OSError as error:
        raise ConfigurationError(f"archive {path} cannot be read: {error}") from None


def _put(cached: CachedFile, contents: Callable[[str], Content] | None, to: Path) -> None:
    if cached.remote:
        _fetch(cached.path, to)
    elif contents is None:
        source = Path(cached.path)
        if source.is_dir():
            shutil.copytree(source, to)
        else:
            shutil.copy2(source, to)
    else:
        content = contents(cached.path)
        if content.folder:
            to.mkdir()
            with tarfile.open(fileobj=_reader(content)) as archive:
                archive.extractall(to, filter="data")
        else:
            to.write_bytes(content.data)
            if content.executable:
                to.chmod(0o700)


def _reader(content: Content) -> IO[bytes]:
    reader: IO[bytes] = pa.BufferReader(content.data)
    return reader


def _fetch(url: str, to: Path) -> None:
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(url)
    if filesystem.isdir(path):
        to.mkdir()
        filesystem.get(path.rstrip("/") + "/", f"{to}/", recursive=True)
    else:
        filesystem.get_file(path, str(to))
