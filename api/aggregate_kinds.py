"""What is to know of a kind of aggregate where none runs: its result's type, where it is offered.

A new one is declared here, or by `operators.aggregates.registry.register` together with what keeps
it; see CONTRIBUTING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import GraphError

if TYPE_CHECKING:
    import pyarrow as pa

ResultType = Callable[["pa.DataType | None"], "pa.DataType | None"]
"""From the type of the values, dictionaries decoded; None for what is not known."""

Exact = Literal["always", "without floats", "never"]
"""When a result is the same to the last digit, in whatever order records are folded and merged."""


@dataclass(frozen=True)
class AggregateKind:
    """`number`: what its number is called, the least and (or None) the greatest that makes sense;
    None if it takes none."""

    name: str
    result: ResultType
    number: tuple[str, int, int | None] | None = None
    values: bool = True
    """Whether it looks at values, of which its accumulators then keep numbers and maybe others; if
    not, only at which records have one, whatever its type."""
    by: bool = False
    """Whether another column is compared."""
    adds: bool = False
    """Whether values are added, and so must be numbers."""
    ordered: bool = False
    """Whether it compares values, or those of `by`: they must have an order."""
    running: bool = False
    """Whether `KeyedStream.aggregate` offers it: its result can be kept up to date."""
    over: bool = False
    """Whether `KeyedStream.over` does. Frames of records have a way of their own for each of these
    kinds (`operators.tables.frames`, `running`), so only declared ones may say it."""
    combines: bool = False
    """Whether it is a few numbers whatever numbers it has seen, and does not depend on the order in
    which records arrive: then windows fold it on both sides of the exchange."""
    exact: Exact = "never"
    """From a single sender records come in an order, and what is not exact keeps to it: it is not
    combined."""

    @property
    def combines_numbers_only(self) -> bool:
        """Whether windows combine it of numbers and times, and of other values not. What adds
        values has only numbers."""
        return self.combines and self.values and not self.adds


def same(kind: pa.DataType | None) -> pa.DataType | None:
    """The type of the values."""
    return kind


def whole(kind: pa.DataType | None) -> pa.DataType | None:
    import pyarrow as pa

    return pa.int64()


def real(kind: pa.DataType | None) -> pa.DataType | None:
    import pyarrow as pa

    return pa.float64()


def listed(kind: pa.DataType | None) -> pa.DataType | None:
    import pyarrow as pa

    return None if kind is None else pa.list_(kind)


def summed(kind: pa.DataType | None) -> pa.DataType | None:
    """float64 for floats, int64 for all else."""
    import pyarrow as pa

    if kind is None:
        return None
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def _adding(name: str, result: ResultType) -> AggregateKind:
    return AggregateKind(
        name, result, adds=True, running=True, over=True, combines=True, exact="without floats"
    )


def _extreme(name: str) -> AggregateKind:
    return AggregateKind(
        name, same, ordered=True, running=True, over=True, combines=True, exact="always"
    )


_DDOF = ("ddof", 0, None)
_N = ("n", 1, None)

_KINDS = [
    AggregateKind(
        "count", whole, values=False, running=True, over=True, combines=True, exact="always"
    ),
    _adding("sum", summed),
    _extreme("min"),
    _extreme("max"),
    _adding("mean", real),
    AggregateKind("first", same, running=True, over=True),
    AggregateKind("last", same, running=True, over=True),
    AggregateKind("variance", real, _DDOF, adds=True, running=True, combines=True),
    AggregateKind("stddev", real, _DDOF, adds=True, running=True, combines=True),
    AggregateKind("arg_min", same, by=True, ordered=True, running=True),
    AggregateKind("arg_max", same, by=True, ordered=True, running=True),
    AggregateKind("count_distinct", whole, running=True),
    AggregateKind("approx_count_distinct", whole, ("precision", 4, 18)),
    AggregateKind("collect", listed),
    AggregateKind("largest", listed, _N, ordered=True),
    AggregateKind("smallest", listed, _N, ordered=True),
]

_BY_NAME = {kind.name: kind for kind in _KINDS}

Suits = Callable[[Any, "pa.DataType"], bool]
"""Of an `Aggregate` and a type of values: whether anything keeps it."""

_SUITS: dict[str, Suits] = {}


def declare(kind: AggregateKind, suits: Suits) -> None:
    """Make it known; `suits`: what says of which types values are kept.
    GraphError if another one has the name, or if it says that `over` offers it."""
    if kind.over:
        known = sorted(names_of(lambda one: one.over))
        raise GraphError(
            f"aggregate '{kind.name}' cannot be declared with over=True: over has {known} alone; "
            "leave it out, and take windows or KeyedStream.aggregate"
        )
    if _BY_NAME.setdefault(kind.name, kind) != kind:
        raise GraphError(f"there is an aggregate '{kind.name}' already")
    _SUITS[kind.name] = suits


def suits_of(name: str) -> Suits | None:
    """What was declared with a kind; None of built-in ones."""
    return _SUITS.get(name)


def kind_of(name: str) -> AggregateKind:
    """GraphError if there is none."""
    found = _BY_NAME.get(name)
    if found is None:
        raise GraphError(f"no aggregate '{name}'; there are {tuple(_BY_NAME)}")
    return found


def names_of(wanted: Callable[[AggregateKind], bool]) -> Iterable[str]:
    """The names of those kinds."""
    return [name for name, kind in _BY_NAME.items() if wanted(kind)]
