"""Where a process runs: what files and messages say of it, and whether it is known to be gone."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from typing import Final

_TEXT: Final = re.compile(r"process (\d+) on (.*)", re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A process of a machine. Its text is what files hold, for people; `parse` reads it again.

    >>> str(Place(17, "worker-3"))
    'process 17 on worker-3'
    >>> Place.parse("process 17 on worker-3")
    Place(process=17, host='worker-3')
    """

    process: int
    host: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @classmethod
    def here(cls) -> Place:
        """This process."""
        return cls(os.getpid(), socket.gethostname())

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """None for what is no place's text."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(int(found[1]), found[2])

    def is_dead(self) -> bool:
        """Whether it is a process of this machine that is known to be gone."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return self._is_zombie()

    def _is_zombie(self) -> bool:
        """Whether it is dead, and only its parent has not asked how it ended. Told on Linux
        alone."""
        try:
            with open(f"/proc/{self.process}/stat", "rb") as about:
                return about.read().rpartition(b")")[2].split()[0] == b"Z"
        except (OSError, IndexError):
            return False


def is_dead(text: str) -> bool:
    """Whether this is a place's text, of a process of this machine that is known to be gone."""
    found = Place.parse(text)
    return found is not None and found.is_dead()
