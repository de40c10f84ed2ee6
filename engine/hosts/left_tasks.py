"""The task actors that coordinators of a job have started: found by their names, asked what they
are, ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from typing import Any, Final

import ray
from ray.util.placement_group import get_placement_group

from ...core.errors import FencedError
from ...core.ids import TaskId
from ..accounts import TaskAccount
from .added_slots import give_back_added
from .control_service import patiently
from .coordinator_names import named_actors
from .placement import give_back
from .ray_connect import NAMESPACE
from .ray_task import Found
from .ready_tasks import taken_by

ANSWER_S: Final = 30.0
"""How long they may take to answer, all together. They work meanwhile: it is worth to wait."""


PREFIX: Final = "strom-task-of-"
"""How the names begin of actors that coordinators have started for tasks."""


def task_prefix(coordinator: str) -> str:
    """How the names of its tasks' actors begin."""
    return f"{PREFIX}{coordinator}-"


def tasks_of(coordinator: str) -> list[Any]:
    """The actors of tasks that coordinators of this name have started, or taken, and that are not
    dead."""
    prefix = task_prefix(coordinator)
    actors = []
    for name in patiently(named_actors):
        if name.startswith(prefix):
            with suppress(ValueError):  # it has just died
                actors.append(patiently(partial(ray.get_actor, name, NAMESPACE)))
    return [*actors, *taken_by(coordinator)]


def end_tasks(coordinator: str) -> None:
    """End those tasks, and with them their slots, unless these stay: nobody knows their job any
    more."""
    for actor in tasks_of(coordinator):
        ray.kill(actor, no_restart=True)
    give_back_added(coordinator)
    with suppress(ValueError):
        give_back(get_placement_group(coordinator))


def ask_all(actors: Sequence[Any], coordinator: Any, term: int) -> list[tuple[Any, Found | None]]:
    """What each says, which from now on hears this coordinator; None: it does not answer.
    FencedError if some hear a later one."""
    asked = [actor.take_over.remote(coordinator, term).future() for actor in actors]
    wait(asked, ANSWER_S)
    said = []
    for actor, answer in zip(actors, asked, strict=True):
        error = answer.exception() if answer.done() else None
        if isinstance(error, FencedError):
            raise error
        said.append((actor, answer.result() if answer.done() and error is None else None))
    return said


def sort_out(
    said: Iterable[tuple[Any, Found | None]], wanted: Callable[[TaskId], bool]
) -> tuple[dict[TaskId, tuple[Any, Found]], list[TaskAccount]]:
    """Of what `ask_all` gives: one actor for each task that the job has (`wanted`), and what
    others say that had a task. The others are ended."""
    found: dict[TaskId, tuple[Any, Found]] = {}
    others: list[TaskAccount] = []
    for actor, answer in said:
        if answer is None or answer.task is None or answer.address is None:
            ray.kill(actor, no_restart=True)
            continue
        one, task = (actor, answer), answer.task
        if not wanted(task):  # of a graph that the job has no more, or not yet
            others += [] if answer.account is None else [answer.account]
            ray.kill(actor, no_restart=True)
            continue
        if task in found:  # a process that was to be ended when the coordinator died
            former, one = sorted((found[task], one), key=_attempt_of)
            ray.kill(former[0], no_restart=True)
        found[task] = one
    return found, others


def _attempt_of(one: tuple[Any, Found]) -> int:
    """In which it is, or was; below all if it never was."""
    account = one[1].account
    return -1 if account is None else account.attempt
