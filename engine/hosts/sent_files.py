"""The files of a job on Ray: in the object store once, on each machine once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

from ...core.job_files import JobFiles
from .job_folder import JobFolder
from .placed_files import Content, place


@dataclass(frozen=True)
class SentFiles:
    """What a task gets: references, not contents."""

    job_id: str
    files: JobFiles
    contents: Mapping[str, Any]
    """By path."""

    @staticmethod
    def of(job_id: str, files: JobFiles, contents: Mapping[str, Content]) -> SentFiles | None:
        """Put into the object store by this process, which owns them there; None: there are no
        files."""
        if not files.any_placed:
            return None
        return SentFiles(job_id, files, {path: ray.put(one) for path, one in contents.items()})

    def arrive(self) -> JobFolder:
        """Have the folder on this machine; nothing is fetched if it is there already. If there are
        archives it is this process's working directory from now on."""
        folder = JobFolder(self.job_id)
        folder.enter(lambda made: place(self.files, self._fetch, made))
        if self.files.archives:
            os.chdir(folder.work)
        return folder

    def _fetch(self, path: str) -> Content:
        content: Content = ray.get(self.contents[path])
        return content
