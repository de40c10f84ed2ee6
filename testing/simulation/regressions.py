"""Cases that once failed, and what was wrong then. They run in each test.

A case is written down whole, as it was printed, shrunk if possible: what seeds draw may change.
"""

from __future__ import annotations

from typing import Final

REGRESSIONS: Final[dict[str, str]] = {
    "stopped with a savepoint that nobody was told of": (
        "seed=5022 job=stateless variant=8 parallelism=1,3 cramped=1 mode=unaligned interval=1 "
        "retained=2 ends=savepoint crashes=1 coordinators=1 after=1 failing=5 hangs=5 "
        "slow_tasks=20 figures=1"
    ),
}
