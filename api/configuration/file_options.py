"""Options of files that come with a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...core.job_files import JobFiles
from .job_files import with_archives_of, with_cached_of, with_requirements_of
from .registry import Apply, known
from .settings import Settings
from .values import LIST, PATHS, STRING


def _add_python_files(settings: Settings, value: list[str]) -> None:
    for path in value:
        settings.add_python_file(path)


def _files(change: Callable[..., JobFiles]) -> Apply:
    return lambda settings, value: settings.change_files(change, value)


FILES: Final = (
    known(
        "python.files",
        PATHS,
        None,
        _add_python_files,
        "files, archives and folders that functions import from, with commas between",
    ),
    known(
        "python.requirements",
        STRING,
        None,
        _files(with_requirements_of),
        "requirements file; `#` and a folder of packages behind it: installed from that, without a "
        "network",
    ),
    known(
        "python.archives",
        PATHS,
        None,
        _files(with_archives_of),
        "unpacked where functions run, with commas between; `#` and a target directory behind each "
        "that has one",
    ),
    known(
        "pipeline.cached-files",
        LIST,
        None,
        _files(with_cached_of),
        "what functions get from `get_distributed_cache`: `name:model,path:/folder/model.bin`, and "
        "`,executable:true`",
    ),
)
