"""Built-in functions for the row window operator: what windows hold, and what they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...core.batch import Batch
from ...core.partials import make_layout, split_layout
from ...state.window_progress import WindowProgress
from ..base import OperatorContext, Output
from ..slots.slot_kinds import runs_on_slots
from ..slots.slot_making import make_slots
from ..window_fields import fields_needed
from .slot_contents import SlotContents
from .slot_emitter import SlotEmitter


class SlotWindows:
    """Bound by the first batch or, by `progress.layout`, from the start."""

    def __init__(
        self, spec: WindowSpec, ctx: OperatorContext, out: Output, progress: WindowProgress
    ) -> None:
        function = spec.function
        assert runs_on_slots(function)
        self._aggregates = make_slots(function)
        self._progress = progress
        fields = fields_needed(spec)
        self.contents = SlotContents(ctx.keyed_state, ctx.name, self._aggregates, fields)
        self.emitter = SlotEmitter(spec, ctx, out, self.contents)
        if progress.layout is not None:
            self._bind(progress.layout)

    def begin(self, batch: Batch, keys: Sequence[Any]) -> None:
        """A batch comes; records are added to `contents` by their rows."""
        inputs = self.contents.inputs(batch)
        if self._progress.layout is None:
            shown = self.emitter.layout(batch, keys)
            self._progress.layout = make_layout(shown, self._aggregates.layout(inputs))
            self._bind(self._progress.layout)
        self.contents.begin(keys, inputs, self._progress.number)

    def end(self, count: int) -> None:
        """The batch, of so many records, is over."""
        self.contents.end()
        self._progress.number += count

    def _bind(self, layout: pa.Schema) -> None:
        keys, fields = split_layout(layout)
        self.contents.bind(fields)
        self.emitter.bind(keys, self._aggregates.names)
