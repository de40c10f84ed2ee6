"""What an operator runs as: chosen while the job is planned, shipped to its tasks, and shown by
`explain()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "kernel", "batches", "rows", "kernel or rows", "kernel or batches", "batches or rows"
]
"""kernel: compiled loops over typed columns; batches: some calls for a whole batch; rows: Python
for each record; one or the other: the first batch decides, or the state that a task is restored
from."""


@dataclass(frozen=True)
class Implementation:
    """`name`: of what runs, for people. `why_not`: why no faster form was taken, None if there is
    none. `form`: what the operator is built from, plain data that is opaque to the graph; None
    where the spec says all. `remarks`: what else was decided about the operator."""

    kind: Kind
    name: str
    why_not: str | None = None
    form: Any = None
    remarks: tuple[str, ...] = ()
