"""The files of a database at one moment, as hard links in a folder beside it.

RocksDB's files never change once they are written, so a link is as good as a copy. What is in the
write buffer is written out first: `create_checkpoint` would do that as well, but it would keep the
interpreter's lock meanwhile.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Lock
from typing import Any

from ....core.errors import StateError


class HeldFiles:
    """`link` on any thread, by whoever comes first; it happens once."""

    def __init__(self, db: Any, folder: Path) -> None:
        self._db = db
        self._folder = folder
        self._lock = Lock()
        self._error: Exception | None = None
        self.linked = False
        """Whether it was tried: the database may be written to."""

    def link(self) -> None:
        """Link them now, if that was not done. An error is kept for whoever wants the files."""
        with self._lock:
            if self.linked:
                return
            try:
                self._link()
            except Exception as error:
                self._error = error
            self._db = None
            self.linked = True

    def give_up(self) -> None:
        """Nobody wants the files any more, or the task is over: if they are not linked, they will
        not be."""
        with self._lock:
            if not self.linked:
                self._error = StateError("they were given up before they were linked")
            self._db = None
            self.linked = True

    def files(self) -> Path:
        """The folder with the links, which are made if they are not there yet. StateError if they
        cannot be."""
        self.link()
        if self._error is not None:
            raise StateError(
                f"the files of the local RocksDB cannot be linked in {self._folder} "
                f"({self._error}): see to space and permissions there"
            ) from self._error
        return self._folder

    def remove(self) -> None:
        """The links are not needed any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _link(self) -> None:
        from rocksdict import Checkpoint

        self._db.flush()
        Checkpoint(self._db).create_checkpoint(str(self._folder))
