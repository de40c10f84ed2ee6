"""From a descriptor to the row-face state that functions use, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.errors import StateError
from .backend import CurrentKey
from .declared_types import DeclaredType, declared_type
from .descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from .row_states import (
    MemoryAggregatingState,
    MemoryListState,
    MemoryMapState,
    MemoryReducingState,
    MemoryValueState,
    Spaces,
)

if TYPE_CHECKING:
    from .expiring_spaces import ExpiringSpaces

RowDescriptor = (
    ValueStateDescriptor
    | ListStateDescriptor
    | MapStateDescriptor
    | ReducingStateDescriptor
    | AggregatingStateDescriptor
)


def kind_of(descriptor: RowDescriptor) -> str:
    """The kind of state that it describes; StateError if of none that has keys."""
    match descriptor:
        case ValueStateDescriptor():
            return "value"
        case ListStateDescriptor():
            return "list"
        case MapStateDescriptor():
            return "map"
        case ReducingStateDescriptor():
            return "reducing"
        case AggregatingStateDescriptor():
            return "aggregating"
    raise StateError(f"{descriptor!r} is not a descriptor of keyed state")


def view_of(
    descriptor: RowDescriptor,
    cell: CurrentKey,
    spaces: Spaces,
    expiring: ExpiringSpaces | None,
) -> Any:
    """The state under the key in `cell`. `expiring`: what `spaces` belong to, if they expire."""
    what = f"state '{descriptor.name}'"
    declared = declared_type(what, descriptor.type_info)
    if expiring is not None:
        return _expiring_view(descriptor, cell, expiring, declared)
    match descriptor:
        case ValueStateDescriptor():
            return MemoryValueState(cell, spaces, declared)
        case ListStateDescriptor():
            return MemoryListState(cell, spaces, declared)
        case MapStateDescriptor():
            return MemoryMapState(cell, spaces, *declared_entries(descriptor))
        case ReducingStateDescriptor():
            return MemoryReducingState(cell, spaces, descriptor.reduce_function, declared)
        case AggregatingStateDescriptor():
            return MemoryAggregatingState(cell, spaces, descriptor.agg_function, declared)


def _expiring_view(
    descriptor: RowDescriptor,
    cell: CurrentKey,
    expiring: ExpiringSpaces,
    declared: DeclaredType | None,
) -> Any:
    from . import expiring_states as made

    spaces, expiry = expiring.spaces, expiring.expiry
    match descriptor:
        case ValueStateDescriptor():
            return made.ExpiringValueState(cell, spaces, expiry, declared)
        case ListStateDescriptor():
            return made.ExpiringListState(cell, spaces, expiry, declared)
        case MapStateDescriptor():
            types = declared_entries(descriptor)
            return made.ExpiringMapState(cell, spaces, expiry, *types)
        case ReducingStateDescriptor():
            function = descriptor.reduce_function
            return made.ExpiringReducingState(cell, spaces, expiry, function, declared)
        case AggregatingStateDescriptor():
            function = descriptor.agg_function
            return made.ExpiringAggregatingState(cell, spaces, expiry, function, declared)


def declared_entries(
    descriptor: MapStateDescriptor,
) -> tuple[DeclaredType | None, DeclaredType | None]:
    """The types of map values and of map keys."""
    what = f"state '{descriptor.name}'"
    keys = declared_type(f"the map key of {what}", descriptor.type_info)
    return declared_type(what, descriptor.value_type_info), keys
