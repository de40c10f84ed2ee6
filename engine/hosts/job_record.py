"""What a job's coordinator leaves for the one that comes after it, should it die.

    <root>/.coordinators/<job id>/submission   what the job was begun with (`Begun`), pickled
    <root>/.coordinators/<job id>/term.json    who is its coordinator (`Term`); rewritten by each
    <root>/.coordinators/<job id>/outcome      how it ended, pickled; there until nobody asks more
    <root>/.coordinators/<job id>/results-...  what it has published to its client (`result_log`)

`root` is that of the job's checkpoints; of a job without a storage of its own a folder of the
machine, so that it survives the death of the process, and not that of the node. Whoever can write
there can have the job run what it likes, as with its checkpoints.

All that is needed to go on beside this is in the checkpoints, and known to the tasks
(`engine.accounts`).
"""

from __future__ import annotations

import json
import os
import pickle
import posixpath
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ...checkpoint.folder_storage import FolderStorage
from ...checkpoint.handles import FileHandle
from ...checkpoint.names import check_job_id
from ...checkpoint.storage import located
from ...core.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    MissingCheckpointError,
)
from ...core.ids import CheckpointId
from ..coordinator.handover import Handover
from ..graph.rescaling import Widths
from .job_outcome import JobOutcome
from .placed_files import Content
from .result_files import named
from .shipped_code import PackedCode

FOLDER: Final = ".coordinators"
"""No job's id."""

SUBMISSION: Final = "submission"
TERM: Final = "term.json"
OUTCOME: Final = "outcome"

_FILES: Final = CheckpointId(0)
"""What files of a record are said to be of."""

_READERS: Final = 8
"""So many files of results are read at once."""

_LOOKS: Final = 3
"""So often they are looked for where some are gone when they are read."""

MOST_DEATHS: Final = 10
"""So many coordinators may die within `DEATHS_MS`."""

DEATHS_MS: Final = 300_000


@dataclass(frozen=True)
class Begun:
    """What a job was begun with. `payload`: the pickled job graph. `code`: what it imports from,
    `contents`: of its files. `first_attempt`, `claimed`: as of `launch`. `token`: what its sinks
    know its coordinators by."""

    payload: bytes
    code: tuple[PackedCode, ...] = ()
    contents: Mapping[str, Content] = field(default_factory=dict)
    first_attempt: int = 0
    claimed: str | None = None
    token: str = ""


@dataclass(frozen=True)
class Term:
    """Of a coordinator. `number`: 0, 1, ...; `attached`: whether the job ends with its program;
    `attempt`: the last that was begun; `since_ms`: when this and the ones before began, the last
    few; `cancelled`: whether somebody was told that it ends. `run`: as `Begun.first_attempt`, which
    tells it from those that the job had before it was begun once more. `left`: what the next one
    goes on from."""

    number: int = 0
    attached: bool = True
    attempt: int = 0
    since_ms: Sequence[int] = ()
    cancelled: bool = False
    run: int = 0
    left: Handover[Widths] = field(default_factory=Handover)

    def next(self, now_ms: int) -> Term:
        """That of the one that comes after it."""
        return replace(
            self, number=self.number + 1, since_ms=(*self.since_ms, now_ms)[-MOST_DEATHS:]
        )

    def dies_too_often(self) -> bool:
        """Whether it is of no use to come back once more."""
        last = self.since_ms[-MOST_DEATHS:]
        return len(last) == MOST_DEATHS and last[-1] - last[0] < DEATHS_MS


class JobRecord:
    """Of one job. All methods take what its storage takes, and raise CheckpointError, or
    ConfigurationError for a root that nobody understands."""

    def __init__(self, root: str | None, job_id: str) -> None:
        """`root`: of the checkpoints; None: a folder of this machine. Nothing is asked of it."""
        self._root = root
        self._job_id = check_job_id(job_id)

    @cached_property
    def _folder(self) -> FolderStorage:
        filesystem, path = located(self._root or str(_local_root()), "checkpoint storage")
        return FolderStorage(filesystem, f"{path.rstrip('/')}/{FOLDER}/{self._job_id}")

    @property
    def of_machine(self) -> bool:
        """Whether it is lost with the machine."""
        return self._root is None

    def begin(self, begun: Begun) -> None:
        """Once, ahead of all else. How a run before this has ended is not how this one does."""
        filesystem, folder = self._folder.filesystem, self._folder.folder
        if self._root is None:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            filesystem.rm_file(f"{folder}/{OUTCOME}")
        self._folder.write_file(_FILES, SUBMISSION, pickle.dumps(begun, protocol=5))

    def read(self) -> tuple[Begun, Term]:
        """MissingCheckpointError if the job has none here."""
        begun: Begun = pickle.loads(self._get(SUBMISSION))
        return begun, self.term()

    def term(self) -> Term:
        """The newest; the first where there is none."""
        try:
            known: dict[str, Any] = json.loads(self._get(TERM))
            return Term(**known | {"left": Handover(**known["left"])})
        except MissingCheckpointError:
            return Term()
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"{self._folder.folder}/{TERM}: {error}") from error

    def write(self, term: Term) -> None:
        self._folder.write_file(_FILES, TERM, json.dumps(asdict(term)).encode())

    def end(self, outcome: JobOutcome, results: int | None = None) -> None:
        """The job is over, and has published so many results; None: nobody knows."""
        self._folder.write_file(_FILES, OUTCOME, pickle.dumps((outcome, results), protocol=5))

    def outcome(self) -> tuple[JobOutcome, int | None] | None:
        """How it ended, and as of `end` how many results it has published; None: it has not."""
        try:
            found: tuple[JobOutcome, int | None] = pickle.loads(self._get(OUTCOME))
        except MissingCheckpointError:
            return None
        return found

    # --- as a `ResultFolder` ---------------------------------------------------------------------

    def put_results(self, name: str, data: bytes) -> None:
        self._folder.put(name, data)

    def get_results(self, name: str) -> bytes:
        return self._get(name)

    def remove_results(self, names: Sequence[str]) -> None:
        self._folder.remove_files(_FILES, [FileHandle(name, 0, "") for name in names])

    def all_results(self) -> dict[str, bytes | CorruptCheckpointError]:
        """Whoever writes them may put some together meanwhile: what is gone is looked for again,
        where it is then."""
        for left in reversed(range(_LOOKS)):
            names = [name for name in self._folder.names() if named(name) is not None]
            found = self._read_results(names)
            if not left or not any(isinstance(d, MissingCheckpointError) for d in found.values()):
                break
        return found

    def _read_results(self, names: Sequence[str]) -> dict[str, bytes | CorruptCheckpointError]:
        if not names:
            return {}
        with ThreadPoolExecutor(min(_READERS, len(names)), "strom-results") as readers:
            return dict(zip(names, readers.map(self._results, names), strict=True))

    def _results(self, name: str) -> bytes | CorruptCheckpointError:
        try:
            return self._get(name)
        except CorruptCheckpointError as error:
            return error

    def remove(self) -> None:
        """Nobody will ask any more. What cannot be removed stays."""
        with suppress(CheckpointError, ConfigurationError, OSError):
            self._folder.filesystem.rm(self._folder.folder, recursive=True)
            self._folder.filesystem.rmdir(posixpath.dirname(self._folder.folder))

    def _get(self, name: str) -> bytes:
        return self._folder.get(name)


def _local_root() -> Path:
    return Path(tempfile.gettempdir()) / f"strom-coordinators-{os.getuid()}"
