"""What a check finds, and how checks are run.

A check is a function that answers a `Finding`. It may be slow, hang or raise: each is run with a
time limit of its own, and what goes wrong with it is a finding, too, never the end of the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ..core.errors import StromError

Status: TypeAlias = Literal["ok", "warning", "problem", "skipped"]

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
SKIPPED: Final = "skipped"


@dataclass(frozen=True)
class Finding:
    """`found`: what there is, in words. `advice`: what to do; empty where there is nothing to."""

    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Check:
    """`examine` is called once, from a thread of its own; it must not print."""

    name: str
    examine: Callable[[], Finding]
    limit_s: float = 10.0


@dataclass(frozen=True)
class Examined:
    """A check that was made, and how long it took."""

    name: str
    status: Status
    found: str
    advice: str
    seconds: float


def examined(checks: Iterable[Check]) -> Iterator[Examined]:
    """Make the checks, one after the other; each is told when it is done.

    >>> [(one.name, one.status) for one in examined([Check("a", lambda: Finding(OK, "fine"))])]
    [('a', 'ok')]
    """
    for check in checks:
        began = time.monotonic()
        finding = within(check.limit_s, check.examine)
        seconds = time.monotonic() - began
        yield Examined(check.name, finding.status, finding.found, finding.advice, seconds)


def within(limit_s: float, examine: Callable[[], Finding]) -> Finding:
    """What `examine` answers; a problem if that takes longer, or it raises.

    What hangs is left behind in a thread that keeps no process from ending."""
    answers: list[Finding] = []

    def run() -> None:
        try:
            answers.append(examine())
        except StromError as error:
            answers.append(Finding(PROBLEM, str(error)))
        except BaseException as error:
            told = f"the check itself failed: {type(error).__name__}: {error}"
            answers.append(Finding(PROBLEM, told, "see whether what it looks at works at all"))

    thread = threading.Thread(target=run, name="strom-doctor", daemon=True)
    thread.start()
    thread.join(limit_s)
    if answers:
        return answers[0]
    return Finding(
        PROBLEM,
        f"no answer within {limit_s:g} s",
        "something that it looks at hangs: a network that drops packets, or a folder that is not "
        "served",
    )


def worst(statuses: Iterable[Status]) -> Status:
    """The gravest of them; `ok` of none.

    >>> worst(["ok", "skipped", "warning"])
    'warning'
    """
    order: tuple[Status, ...] = (SKIPPED, OK, WARNING, PROBLEM)
    return max((OK, *statuses), key=order.index)
