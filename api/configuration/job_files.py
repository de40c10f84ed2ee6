"""What a program says of the files that come with its jobs, checked where it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from ...core.errors import ConfigurationError
from ...core.job_files import ArchiveFile, CachedFile, JobFiles, Requirements
from .values import read_boolean, read_map


def with_archive(files: JobFiles, archive_path: str, target_dir: str | None) -> JobFiles:
    """A zip or tar, unpacked into `target_dir`, by default a folder called as the archive is."""
    path = _existing("add_python_archive", archive_path, Path.is_file)
    archive = ArchiveFile(str(path), _inside(path.name if target_dir is None else target_dir))
    others = [one for one in files.archives if one != archive]
    _check_free("add_python_archive", replace(files, archives=tuple(others)), archive.target)
    target = PurePosixPath(archive.target)
    for other in others:
        if target.is_relative_to(other.target) or PurePosixPath(other.target).is_relative_to(
            target
        ):
            raise ConfigurationError(
                f"add_python_archive: target_dir '{target}' and '{other.target}', where "
                f"{other.path} is unpacked, are one in the other: take folders beside each other"
            )
    return replace(files, archives=(*others, archive))


def with_cached(files: JobFiles, file_path: str, name: str, executable: bool) -> JobFiles:
    """A file or folder of this machine, or of any filesystem that fsspec has a URL for."""
    text = file_path.removeprefix("file://")
    if "://" not in text:
        text = str(_existing("register_cached_file", text, Path.exists))
    file = CachedFile(text, name, executable)
    others = [one for one in files.cached if one != file]
    _check_free("register_cached_file", replace(files, cached=tuple(others)), name)
    return replace(files, cached=(*others, file))


def with_requirements(files: JobFiles, file_path: str, cache_dir: str | None) -> JobFiles:
    """Instead of those named before, as in PyFlink."""
    method = "set_python_requirements"
    file = str(_existing(method, file_path, Path.is_file))
    folder = None if cache_dir is None else str(_existing(method, cache_dir, Path.is_dir))
    return replace(files, requirements=Requirements(file, folder))


def with_archives_of(files: JobFiles, paths: list[str]) -> JobFiles:
    """Of the option `python.archives`: paths, each with `#` and a target if it has one."""
    for path in paths:
        archive, separator, target = path.partition("#")
        files = with_archive(files, archive, target if separator else None)
    return files


def with_requirements_of(files: JobFiles, value: str) -> JobFiles:
    """Of the option `python.requirements`: a file, with `#` and a folder if it has one."""
    file, separator, folder = value.partition("#")
    return with_requirements(files, file, folder if separator else None)


def with_cached_of(files: JobFiles, values: list[str]) -> JobFiles:
    """Of the option `pipeline.cached-files`: maps with the keys name, path and executable."""
    for value in values:
        said = read_map(value)
        unknown = sorted(said.keys() - {"name", "path", "executable"})
        if unknown or not {"name", "path"} <= said.keys():
            raise ConfigurationError(
                f"{value!r} must have the keys name, path and, if wanted, executable: write "
                "name:model,path:/folder/model.bin"
            )
        executable = read_boolean(said.get("executable", False))
        files = with_cached(files, said["path"], said["name"], executable)
    return files


def _existing(method: str, text: str, is_right: Any) -> Path:
    path = Path(text.removeprefix("file://")).absolute()
    if not path.exists():
        raise ConfigurationError(f"{method}: there is no {path}")
    if not is_right(path):
        raise ConfigurationError(
            f"{method}: {path} is a {'folder' if path.is_dir() else 'file'}, not a "
            f"{'file' if path.is_dir() else 'folder'}"
        )
    return path


def _inside(target: str) -> str:
    """The target without `.` and double slashes, if it stays below the working directory."""
    path = PurePosixPath(target)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigurationError(
            f"add_python_archive: target_dir must name a folder below the working directory of "
            f"functions, is {target!r}"
        )
    return str(path)


def _check_free(method: str, files: JobFiles, name: str) -> None:
    for archive in files.archives:
        if archive.target == name:
            raise ConfigurationError(
                f"{method}: '{name}' is where {archive.path} is unpacked: give another name"
            )
    for cached in files.cached:
        if cached.name == name:
            raise ConfigurationError(f"{method}: '{name}' is {cached.path}: give another name")
