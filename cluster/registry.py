"""What outlives a dispatcher: its jobs, in a folder on any fsspec filesystem.

    jobs/<job id>/record.json     a job that is not over
    jobs/<job id>/submission      what it is started from, however often
    jobs/<job id>/end.json        how its last run ended, as its coordinator left it
    history/<job id>.json         a job that is over
    views/<job id>.json           all that was known of it in the end, for whoever looks at it
    logs/<job id>.json            the last lines of its log
    accumulators/<job id>         those of its functions, if there were any

Each file is there whole or not at all, and a job's submission before its record. Whoever can write
there decides what runs on the cluster: submissions hold pickles.
"""

from __future__ import annotations

import json
import logging
import pickle
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..api.jobs.accumulator_results import Part
from ..checkpoint.storage import located
from ..checkpoint.whole_files import SLEEP, WholeFiles
from ..core.errors import CorruptCheckpointError, MissingCheckpointError
from ..core.failure_text import described
from ..core.job_status import JobStatus
from ..engine.hosts.job_outcome import JobOutcome
from .records import JobRecord

log = logging.getLogger("strom")

RECORD, SUBMISSION, END = "record.json", "submission", "end.json"


class Registry(WholeFiles):
    """Used by one thread at a time. What fails raises CheckpointError, naming the file."""

    def __init__(self, location: str, write: bool = True) -> None:
        """`location`: an fsspec URL or path. Not `write`: it is only read, and may be missing.
        ConfigurationError for one nobody understands; CheckpointError for one that cannot be
        used."""
        filesystem, self._root = located(location, "registry")
        super().__init__(filesystem, SLEEP, None)
        for name in ("history", "views") if write else ():
            self._make(posixpath.join(self._root, name))

    def _make(self, folder: str) -> None:
        with self._failing("make", folder):
            self._retried(lambda: self._make_folder(folder))

    def exists(self) -> bool:
        """Whether there is one."""
        return self._is_there(posixpath.join(self._root, "history"))

    def submit(self, record: JobRecord, submission: bytes) -> None:
        """Keep a new job."""
        self._put(self._of_job(record.job_id, SUBMISSION), submission)
        self.store(record)

    def store(self, record: JobRecord) -> None:
        """Keep what is known of a job now; of one that is not over."""
        self._put_json(self._of_job(record.job_id, RECORD), record.to_json())

    def archive(
        self,
        record: JobRecord,
        more: dict[str, Any],
        view: Mapping[str, Any] | None = None,
        accumulators: Sequence[Part] = (),
    ) -> None:
        """Keep how a job ended, with what else is known of it, and nothing else of it. `view`: the
        last one of the job, which may be large; whoever lists jobs does not read it, nor the
        `accumulators`, sealed as they are."""
        if accumulators:
            self._put(self._of_accumulators(record.job_id), pickle.dumps(tuple(accumulators)))
        if view is not None:
            self._put_json(self._of_view(record.job_id), dict(view))
        self._put_json(self._of_history(record.job_id), {"record": record.to_json(), **more})
        self._drop(record.job_id)

    def keep_lines(self, job_id: str, lines: list[dict[str, Any]]) -> None:
        """Keep the last lines of the log of a job that is over."""
        self._put_json(self._of_lines(job_id), {"lines": lines})

    def lines(self, job_id: str) -> list[dict[str, Any]]:
        """What `keep_lines` kept; nothing if it did not."""
        try:
            found: list[dict[str, Any]] = self._json(self._of_lines(job_id))["lines"]
        except MissingCheckpointError:
            return []
        return found

    def remove(self, job_id: str) -> None:
        """Keep nothing any more of a job that is over. The history tells of it until all else is
        gone: if this breaks off, the next call does the rest, and nobody starts the job again."""
        self._drop(job_id)
        for path in (
            self._of_accumulators(job_id),
            self._of_lines(job_id),
            self._of_view(job_id),
            self._of_history(job_id),
        ):
            with self._failing("remove", path):
                self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]

    def forget(self, job_id: str) -> None:
        """Keep nothing of a job that is not over."""
        self._drop(job_id)

    def last_word(self, record: JobRecord) -> JobOutcome | None:
        """What `leave_word` kept of the end of this run, without accumulators. None: nothing.
        CorruptCheckpointError for what nobody can read."""
        job_id = record.job_id
        try:
            found = self._json(self._of_job(job_id, END))
        except MissingCheckpointError:
            return None
        try:
            if found["run"] != record.run:
                return None
            status, figures = JobStatus(found["status"]), dict(found.get("figures", {}))
            return JobOutcome.kept(job_id, record.name, status, found["error"], figures)
        except (KeyError, TypeError, ValueError) as error:
            path = self._of_job(job_id, END)
            raise CorruptCheckpointError(f"{path}: no end of a run: {described(error)}") from error

    def put_last_word(self, run: int, outcome: JobOutcome) -> None:
        """Of a job that is not over as far as the session knows."""
        end = self._of_job(outcome.job_id, END)
        if self._is_there(self._of_job(outcome.job_id, RECORD)):
            told = {"run": run, "status": outcome.status.value, "error": outcome.error}
            try:
                self._put_json(end, {**told, "figures": outcome.figures})
            except (TypeError, ValueError):  # for what users put into metrics
                self._put_json(end, told)

    def submission(self, job_id: str) -> bytes:
        """Of a job that is not over."""
        return self._read(self._of_job(job_id, SUBMISSION))

    def records(self) -> Iterator[JobRecord]:
        """Those of all jobs that are not over. What a submission that broke off, or an archiving
        that did, has left is removed; files that lie there are somebody else's."""
        over = set(self.history())
        for job_id in self._names_in(posixpath.join(self._root, "jobs"), folders=True):
            try:
                record = None if job_id in over else self._record(job_id)
            except CorruptCheckpointError as error:
                # Nothing of it is removed: somebody may mend it, or a later version know it.
                log.error("job %s of the registry cannot be read: %s", job_id, error)
                continue
            if record is None:
                self._drop(job_id)
            else:
                yield record

    def history(self, by_time: bool = False) -> list[str]:
        """The ids of all jobs that are over. `by_time`: the last is the one that ended last, as far
        as the filesystem tells."""
        names = self._names_in(posixpath.join(self._root, "history"), by_time)
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def ended(self, job_id: str) -> dict[str, Any] | None:
        """What `archive` kept of a job: `record`, and more. None: it knows of no such job."""
        try:
            return self._json(self._of_history(job_id))
        except MissingCheckpointError:
            return None

    def ended_record(self, job_id: str) -> JobRecord | None:
        """Of a job that is over. None: it knows of no such job. CorruptCheckpointError."""
        found = self.ended(job_id)
        path = self._of_history(job_id)
        return None if found is None else _record_in(path, found.get("record"))

    def accumulators(self, job_id: str) -> Sequence[Part]:
        """Those of a job that is over."""
        try:
            data = self._read(self._of_accumulators(job_id), MissingCheckpointError)
        except MissingCheckpointError:
            return ()
        parts: Sequence[Part] = pickle.loads(data)  # whoever writes there may run anything
        return parts

    def view(self, job_id: str) -> dict[str, Any] | None:
        """The last one of a job that is over. None: there is none, as when it never ran."""
        try:
            return self._json(self._of_view(job_id))
        except MissingCheckpointError:
            return None

    def _record(self, job_id: str) -> JobRecord | None:
        path = self._of_job(job_id, RECORD)
        try:
            return _record_in(path, self._json(path))
        except MissingCheckpointError:
            return None

    def _of_job(self, job_id: str, name: str) -> str:
        return posixpath.join(self._root, "jobs", job_id, name)

    def _of_history(self, job_id: str) -> str:
        return posixpath.join(self._root, "history", f"{job_id}.json")

    def _of_lines(self, job_id: str) -> str:
        return posixpath.join(self._root, "logs", f"{job_id}.json")

    def _of_accumulators(self, job_id: str) -> str:
        return posixpath.join(self._root, "accumulators", job_id)

    def _of_view(self, job_id: str) -> str:
        return posixpath.join(self._root, "views", f"{job_id}.json")

    def _is_there(self, path: str) -> bool:
        with self._failing("read", path):
            return bool(self._retried(lambda: self._exists(path)))

    def _put_json(self, path: str, document: dict[str, Any]) -> None:
        self._put(path, json.dumps(document, sort_keys=True, default=str).encode())

    def _put(self, path: str, data: bytes) -> None:
        with self._failing("write", path):
            self._retried(lambda: self._write(path, data))
            self._sync_folder(posixpath.dirname(path))

    def _json(self, path: str) -> dict[str, Any]:
        data = self._read(path, MissingCheckpointError)
        try:
            found = json.loads(data)
        except ValueError as error:
            raise CorruptCheckpointError(f"{path}: not JSON: {error}") from error
        if not isinstance(found, dict):
            raise CorruptCheckpointError(f"{path}: not an object")
        return found

    def _drop(self, job_id: str) -> None:
        folder = posixpath.join(self._root, "jobs", job_id)
        with self._failing("remove", folder):
            self._removed(folder)


def _record_in(path: str, found: Any) -> JobRecord:
    try:
        return JobRecord.from_json(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = described(error)
        raise CorruptCheckpointError(f"{path}: not the record of a job: {why}") from error


def leave_word(location: str, run: int, outcome: JobOutcome) -> None:
    """What a coordinator does when its job is over: there may be no dispatcher to be told, and the
    coordinator does not stay. Whoever comes next is not to start that job again. Errors are
    logged."""
    try:
        Registry(location, write=False).put_last_word(run, outcome)
    except Exception as failure:
        what = described(failure)
        log.warning("job %s: its end is not in the registry: %s", outcome.job_id, what)
