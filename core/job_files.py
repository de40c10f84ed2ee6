"""Files that come with a job: which ones, and where they lie on a machine that runs it.

    <temporary folder>/strom-jobs-<user>/<job id>/
        work/<target>/...       archives, unpacked: the working directory of functions
        cache/<number>/<name>   registered files and folders

`engine/hosts/job_folder.py` makes it and removes it; everybody else only works out paths.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from .errors import ConfigurationError

WORK: Final = "work"
CACHE: Final = "cache"


@dataclass(frozen=True)
class ArchiveFile:
    """An archive of the program's machine, and the folder below the working directory that it is
    unpacked into."""

    path: str
    target: str


@dataclass(frozen=True)
class CachedFile:
    """A file or folder: an absolute path of the program's machine, or an fsspec URL."""

    path: str
    name: str
    executable: bool = False

    @property
    def remote(self) -> bool:
        """Whether each machine reads it for itself."""
        return "://" in self.path

    @property
    def own_name(self) -> str:
        """What it is called where it comes from."""
        path = urlsplit(self.path).path if self.remote else self.path
        return PurePosixPath(path).name or "file"


@dataclass(frozen=True)
class Requirements:
    """A requirements file of the program's machine, and a folder of packages to install from
    without a network."""

    file: str
    cache_dir: str | None = None


@dataclass(frozen=True)
class JobFiles:
    """All that comes with a job."""

    archives: tuple[ArchiveFile, ...] = ()
    cached: tuple[CachedFile, ...] = ()
    requirements: Requirements | None = None

    @property
    def any_placed(self) -> bool:
        """Whether the job needs a folder on each machine."""
        return bool(self.archives or self.cached)


def files_root() -> Path:
    """The folder of the folders of all jobs of this user on this machine."""
    return Path(tempfile.gettempdir()) / f"strom-jobs-{os.getuid()}"


def job_folder(job_id: str) -> Path:
    return files_root() / job_id


class DistributedCache:
    """The files of one job, on the machine that asks."""

    def __init__(self, job_id: str, files: JobFiles) -> None:
        self._files = files
        self._folder = job_folder(job_id)

    def get_file(self, name: str) -> Path:
        """Where the file or folder is that was registered under this name, or that an archive was
        unpacked into. It is there as long as the job runs. ConfigurationError if there is none."""
        path = self._places().get(name)
        if path is None:
            known = ", ".join(f"'{known}'" for known in self._places()) or "none"
            raise ConfigurationError(
                f"there is no cached file '{name}', the job has {known}: call "
                "register_cached_file(file_path, name) before it is submitted"
            )
        if not path.exists():
            raise ConfigurationError(
                f"cached file '{name}' is not at {path}: files are brought to whole jobs, and not "
                "to the operator harness"
            )
        return path

    def _places(self) -> dict[str, Path]:
        folder = self._folder
        return {
            **{one.target: folder / WORK / one.target for one in self._files.archives},
            **{
                one.name: folder / CACHE / str(n) / one.own_name
                for n, one in enumerate(self._files.cached)
            },
        }
