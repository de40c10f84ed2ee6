"""Open state: checkpoints and savepoints as tables, read, compared, checked and written.

`strom.state.open` and `strom.state.write` are `open` and `write` of this package.
"""

from __future__ import annotations

from .comparing import Difference, StateDifference
from .disposing import dispose
from .editing import Edits
from .snapshot import OperatorInfo, Snapshot, StateInfo, open
from .verifying import Verified

__all__ = [
    "Difference",
    "Edits",
    "OperatorInfo",
    "Snapshot",
    "StateDifference",
    "StateInfo",
    "Verified",
    "dispose",
    "open",
    "write",
]


def write(
    *, job_name: str = "written", max_parallelism: int = 128, job_id: str = "written"
) -> Edits:
    """The beginning of a savepoint with no state yet: fill it, and `save` it.

    max_parallelism: that of the job that will start from it, by which keys get their key groups.
    """
    return Edits(job_name, job_id, max_parallelism)
