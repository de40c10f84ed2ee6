"""Whose a folder is, on any fsspec filesystem, as `connectors.ownership` decides it. Coordinators
take and release, writers check.

    <path>/.strom/owner-<n>          who took it over as the n-th, and who before; made exclusively
    <path>/.strom/owner-<n>.ended    that job is over, and how

Names that begin with a dot are hidden from readers of the folder. Names of part files say job and
checkpoint (`Published`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ...api.connectors.base import OutputClaim, WriterContext
from ...core.errors import FencedError
from ...core.exclusive_files import create
from ...core.failure_text import described
from ...core.place import is_dead
from ..ownership import (
    FINISHED,
    Owner,
    begun_anew,
    is_earlier_run,
    later,
    refused,
    taken,
    twice,
)
from .paths import filesystem, is_local, make_folder, sync_folders
from .staging import published_name

FOLDER = ".strom"

_OWNER = re.compile(r"owner-([1-9]\d*)")

MOST_KNOWN = 500
"""Jobs that a record names; of more, the last ones."""


_KNOWN = re.compile(r"owner-[1-9]\d*(\.ended)?(\.[0-9a-f]{32}\.tmp)?")

Published = Callable[[str, str], re.Pattern[str]]
"""What names of files match that a job's sink has published, by job and operator id; group 1: the
checkpoint."""


class Owners:
    """The records in one folder."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None,
        sink: str = "FileSink",
        published: Published = published_name,
    ) -> None:
        """`sink`: how its class is called, for messages."""
        self.url = url
        self._sink = sink
        self.published = published
        self.fs, root = filesystem(url, options)
        self.root = root.rstrip("/")
        self._folder = f"{self.root}/{FOLDER}"

    def take(self, claim: OutputClaim, asked: bool, takes_back: bool) -> list[str]:
        """`asked`: by name. `takes_back`: files of later output can be removed. What is worth a
        warning. OutputRefusedError."""
        while True:
            number, history, said = self._records()
            last = history[-1] if history else None
            dead = last is not None and is_dead(last.place)
            known = taken(self.url, history, claim, asked, dead, self._sink)
            found = self._later(known, claim)
            self._check_later(known, claim, found, asked, takes_back)
            mine = last is not None and last.token == claim.token
            if mine or self._write(number + 1, _last_one(known, claim.job_id)):
                said += self._of_earlier_run(last, claim)
                # Once more, now that whoever publishes finds the record.
                back = self._taken_back(claim, self._later(known, claim)) if takes_back else []
                return [*said, *back]

    def release(self, claim: OutputClaim, status: str) -> None:
        number, history = self.history()
        if history and history[-1].token == claim.token:
            self._put(f"{self._folder}/owner-{number}.ended", status.encode())

    def has(self, number: int) -> bool:
        """Whether there was an owner of this number."""
        self._forget_listings()
        try:
            self.fs.info(f"{self._folder}/owner-{number}")
        except FileNotFoundError:
            return False
        return True

    # --- later output ----------------------------------------------------------------------

    def _later(self, known: Sequence[Owner], claim: OutputClaim) -> dict[str, list[str]]:
        """Files that hold it, by job."""
        if claim.origin is None:
            return {}
        return self._found(later(known, claim.job_id), claim.operator_id)

    def _of_earlier_run(self, last: Owner | None, claim: OutputClaim) -> list[str]:
        """A warning where a run of the job did not finish, and its output stays under this one."""
        if last is None or not is_earlier_run(last, claim):
            return []
        files = self._found({last.job_id: 0}, claim.operator_id).get(last.job_id, [])
        pattern = self.published(last.job_id, claim.operator_id)
        to = [int(m[1]) for path in files if (m := pattern.fullmatch(path.rsplit("/", 1)[-1]))]
        return [begun_anew(self.url, last, f"{len(to)} files", max(to))] if to else []

    def _found(self, behind: Mapping[str, int], operator_id: str) -> dict[str, list[str]]:
        """Published files by job, of these jobs and behind these checkpoints."""
        self._forget_listings()
        names = {
            job_id: (self.published(job_id, operator_id), after) for job_id, after in behind.items()
        }
        found: dict[str, list[str]] = {}
        for path in self.fs.find(self.root) if self.fs.exists(self.root) else ():
            name = path.rsplit("/", 1)[-1]
            for job_id, (pattern, after) in names.items():
                match = pattern.fullmatch(name)
                if match and int(match[1]) > after and not self._is_hidden(path):
                    found.setdefault(job_id, []).append(path)
        return found

    def _is_hidden(self, path: str) -> bool:
        return path.removeprefix(self.root).startswith("/.")

    def _check_later(
        self,
        known: Sequence[Owner],
        claim: OutputClaim,
        found: Mapping[str, Sequence[str]],
        asked: bool,
        takes_back: bool,
    ) -> None:
        if not found or asked or claim.origin is None:
            return
        owners = {owner.job_id: owner for owner in known}
        finished = [j for j in found if j in owners and owners[j].ended == FINISHED]
        if takes_back and not finished:
            return
        job_id = finished[0] if finished else next(iter(found))
        name = owners[job_id].named() if job_id in owners else f"job {job_id}"
        how = "removes those files" if takes_back else "publishes it twice"
        why = "is finished" if finished else "merges files, which cannot be taken back"
        files = f"{sum(map(len, found.values()))} files"
        way = f"{self._sink}(..., take_over=True), which {how}"
        raise twice(self.url, claim, files, f"of {name}, which {why}", way)

    def _taken_back(self, claim: OutputClaim, found: Mapping[str, Sequence[str]]) -> list[str]:
        said = []
        for job_id, paths in found.items():
            for path in paths:
                with suppress(FileNotFoundError):
                    self.fs.rm_file(path)
            said.append(
                f"removed {len(paths)} files from '{self.url}' that job {job_id} published behind "
                f"the checkpoint from which job {claim.job_id} continues"
            )
        return said

    # --- records ---------------------------------------------------------------------------

    def history(self) -> tuple[int, list[Owner]]:
        """The last number, and all owners as the last record has them that can be read."""
        number, history, _ = self._records()
        return number, history

    def _records(self) -> tuple[int, list[Owner], list[str]]:
        """And what is worth a warning of them."""
        self._forget_listings()
        try:
            names = [p.rsplit("/", 1)[-1] for p in self.fs.ls(self._folder, detail=False)]
        except FileNotFoundError:
            return 0, [], []
        odd = [n for n in names if n.startswith("owner-") and not _KNOWN.fullmatch(n)]
        said = [f"'{self._folder}/{name}' is none of strom's files" for name in sorted(odd)]
        last = max((int(m[1]) for name in names if (m := _OWNER.fullmatch(name))), default=0)
        while self.has(last + 1):  # a listing may be late
            last += 1
        for number in range(last, 0, -1):
            try:
                return last, self._record(number), said
            except FileNotFoundError:
                continue  # somebody tidied up
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                said.append(
                    f"'{self._folder}/owner-{number}' cannot be read ({described(error)}): who had "
                    "the folder then is not known, nor kept from going on. See to it that no other "
                    "job writes there"
                )
        return last, [], said

    def _record(self, number: int) -> list[Owner]:
        record = json.loads(self.fs.cat_file(f"{self._folder}/owner-{number}"))
        history = [Owner(**owner) for owner in record["owners"]]
        if not all(isinstance(owner.job_id, str) for owner in history):
            raise TypeError("a job's id is no text")
        if history:
            with suppress(FileNotFoundError):
                ended = self.fs.cat_file(f"{self._folder}/owner-{number}.ended").decode()
                history[-1] = replace(history[-1], ended=ended)
        return history

    def _write(self, number: int, owners: Sequence[Owner]) -> bool:
        make_folder(self.fs, self._folder)
        data = json.dumps({"owners": [asdict(o) for o in owners[-MOST_KNOWN:]]}).encode()
        made = create(self.fs, f"{self._folder}/owner-{number}", data)
        if made and is_local(self.fs):
            sync_folders([self._folder])
        return made

    def _put(self, path: str, data: bytes) -> None:
        create(self.fs, path, data)

    def _forget_listings(self) -> None:
        if not is_local(self.fs):
            self.fs.invalidate_cache()


class Ownership:
    """One writer's look at the records, behind what it publishes: who takes over looks for files
    only when its record is there, so either it finds them, or the writer finds the record. Costs a
    look whether a file is there at each `check`, and at the first a listing."""

    def __init__(self, owners: Owners, context: WriterContext) -> None:
        self._owners = owners
        self._context = context
        self._number: int | None = None
        """Under which the job has the folder; None: not looked yet."""

    def check(self, published: Sequence[str]) -> None:
        """FencedError if the job does not have the folder any more. Then those of the files are
        removed that the new owner publishes again; others it counts on."""
        if not self._context.token:
            return
        if self._number is not None and not self._owners.has(self._number + 1):
            return
        number, history = self._owners.history()
        if history and history[-1].token != self._context.token:
            by, mine = history[-1], self._context.job_id
            if mine != by.job_id:
                self._take_back(published, later(history, by.job_id).get(mine))
            raise FencedError(refused(self._owners.url, f"job {mine}", by))
        self._number = number

    def _take_back(self, published: Sequence[str], after: int | None) -> None:
        if after is None:
            return
        names = self._owners.published(self._context.job_id, self._context.operator_id)
        for path in published:
            match = names.fullmatch(path.rsplit("/", 1)[-1])
            if match and int(match[1]) > after:
                with suppress(FileNotFoundError):
                    self._owners.fs.rm_file(path)


def _last_one(owners: Sequence[Owner], job_id: str) -> list[Owner]:
    """With the present one at the end."""
    rest = [owner for owner in owners if owner.job_id != job_id]
    return [*rest, *(owner for owner in owners if owner.job_id == job_id)]
