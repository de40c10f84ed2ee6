"""What several commands share: options, and the type of their lines."""

from __future__ import annotations

from argparse import ArgumentParser, _SubParsersAction
from typing import Any, TypeAlias

from ..arguments import count
from ..configured import pair
from ..nexmark.registry import NEXMARK_ROWS

Line: TypeAlias = dict[str, Any]
"""What a command prints as JSON."""

Commands: TypeAlias = "_SubParsersAction[ArgumentParser]"


_EVENTS = 20_000_000
_SLOW = {"wordcount": 4_000_000, "kprocess": 4_000_000, **dict.fromkeys(NEXMARK_ROWS, 2_000_000)}
"""Workloads that need fewer, to take as long."""


def default_events(workload: str) -> int:
    """As many as take some seconds."""
    return _SLOW.get(workload, _EVENTS)


def common(command: ArgumentParser) -> None:
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def told(command: ArgumentParser) -> None:
    command.add_argument("--backend", metavar="NAME", help="where state is: memory or rocksdb")
    conf(command)


def conf(command: ArgumentParser) -> None:
    command.add_argument(
        "--conf",
        type=pair,
        action="append",
        metavar="KEY=VALUE",
        help="an option of docs/configuration.md; may be given several times",
    )
