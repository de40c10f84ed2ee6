"""What a layout says of the types that a state is declared with."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from ...declared_types import arrow_type
from ...descriptors import MapStateDescriptor, StateDescriptor
from ...migration import NO_MIGRATION
from ..database.layouts import VALUES, Layout
from ..database.taken_over import PLAIN, TYPE
from ..database.task_database import TaskDatabase


def begun(
    database: TaskDatabase, descriptor: StateDescriptor, kind: str, stored: Layout
) -> tuple[bytes, bool]:
    """As `TaskDatabase.new_state`, of a state whose entries are `stored` so."""
    changed = descriptor.migration is not NO_MIGRATION
    layout = {**stored, **declared_layout(descriptor)}
    return database.new_state(descriptor.name, kind, layout, changed)


def declared_layout(descriptor: StateDescriptor) -> dict[str, str]:
    """Two states that are declared so take the same values, and keep them alike."""
    text = _text(descriptor.type_info)
    if isinstance(descriptor, MapStateDescriptor):
        of_values = _text(descriptor.value_type_info)
        text = f"{text} {of_values}" if text or of_values else ""
    return {TYPE: text, VALUES: PLAIN}


def _text(declared: Any) -> str:
    """With the marks of its fields, such as that of tuples."""
    kind = arrow_type(declared)
    if kind is None:
        return ""
    schema = pa.schema([pa.field("", kind)])
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
