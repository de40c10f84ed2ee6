"""What a job's coordinator leaves for the one that comes after it, should it die.

    <root>/.coordinators/<job id>/submission   what the job was begun with (`Begun`), pickled
    <root>/.coordinators/<job id>/term.json    who is its coordinator (`Term`); rewritten by each
    <root>/.coordinators/<job id>/outcome      how it ended, pickled; there until nobody asks more

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
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ...checkpoint.folder_storage import FolderStorage
from ...checkpoint.names import check_job_id
from ...checkpoint.storage import located
from ...core.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError
from ...core.ids import CheckpointId
from .job_outcome import JobOutcome
from .placed_files import Content
from .shipped_code import PackedCode

FOLDER: Final = ".coordinators"
"""No job's id."""

SUBMISSION: Final = "submission"
TERM: Final = "term.json"
OUTCOME: Final = "outcome"

_FILES: Final = CheckpointId(0)
"""What files of a record are said to be of."""

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
    few."""

    number: int = 0
    attached: bool = True
    attempt: int = 0
    since_ms: Sequence[int] = ()

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
    """Of one job. All methods take what its storage takes, and raise CheckpointError."""

    def __init__(self, root: str | None, job_id: str) -> None:
        """`root`: of the checkpoints; None: a folder of this machine."""
        filesystem, path = located(root or str(_local_root()), "checkpoint storage")
        folder = f"{path.rstrip('/')}/{FOLDER}/{check_job_id(job_id)}"
        self._folder = FolderStorage(filesystem, folder)
        self._filesystem = filesystem
        self._local = folder if root is None else None

    @property
    def of_machine(self) -> bool:
        """Whether it is lost with the machine."""
        return self._local is not None

    def begin(self, begun: Begun) -> None:
        """Once, ahead of all else."""
        if self._local is not None:
            os.makedirs(self._local, mode=0o700, exist_ok=True)
        self._folder.write_file(_FILES, SUBMISSION, pickle.dumps(begun, protocol=5))

    def read(self) -> tuple[Begun, Term]:
        """MissingCheckpointError if the job has none here."""
        begun: Begun = pickle.loads(self._get(SUBMISSION))
        try:
            known: dict[str, Any] = json.loads(self._get(TERM))
            term = Term(**known)
        except MissingCheckpointError:
            term = Term()
        except (ValueError, TypeError) as error:
            raise CorruptCheckpointError(f"{self._folder.folder}/{TERM}: {error}") from error
        return begun, term

    def write(self, term: Term) -> None:
        self._folder.write_file(_FILES, TERM, json.dumps(asdict(term)).encode())

    def end(self, outcome: JobOutcome) -> None:
        """The job is over."""
        self._folder.write_file(_FILES, OUTCOME, pickle.dumps(outcome, protocol=5))

    def outcome(self) -> JobOutcome | None:
        """How it ended; None: it has not."""
        try:
            found: JobOutcome = pickle.loads(self._get(OUTCOME))
        except MissingCheckpointError:
            return None
        return found

    def remove(self) -> None:
        """Nobody will ask any more. What cannot be removed stays."""
        with suppress(CheckpointError, OSError):
            self._filesystem.rm(self._folder.folder, recursive=True)

    def _get(self, name: str) -> bytes:
        return self._folder.get(name)


def _local_root() -> Path:
    return Path(tempfile.gettempdir()) / f"strom-coordinators-{os.getuid()}"
