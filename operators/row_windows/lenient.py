"""Windows row by row, where what makes a function of the program raise is put aside.

* A record for which the assigner, or the reduce or aggregate function, raises is in no window from
  then on; of several windows it stays in those that it had been folded into before.
* A firing for which the window function, or the aggregate's `get_result`, raises gives nothing; its
  letter has the window, its key and what the function was given. What becomes of the window is what
  would have become of it otherwise.

What triggers raise is no matter of either, and fails the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..letters import Letters, NoRecord, open_letters
from ..rows.gathering import Gathering
from .operator import RowWindowOperator
from .window_contents import Fold, FoldedContents
from .window_contexts import ProcessContext
from .window_emit import FunctionEmitter, PlainEmitter
from .window_logic import WindowLogic


class LenientRowWindowOperator(RowWindowOperator):
    """See the module. Without evictors, and without folds where windows merge (`WindowSpec`)."""

    def _logic(self, process: ProcessContext) -> WindowLogic:
        letters = open_letters(self)
        assert letters is not None
        self._letters: Letters = letters
        self._assign = _listed(self._spec.assigner.assign_windows)
        logic = super()._logic(process)
        if isinstance(logic.contents, FoldedContents):
            logic.contents.fold = _GuardedFold(logic.contents.fold)
        emitter = logic.emitter
        assert isinstance(emitter, (PlainEmitter, FunctionEmitter))
        gathering = Gathering(self, letters, self._spec.schema, sides=True)
        return replace(logic, emitter=_Emitter(emitter, gathering))

    def _add(self, key: Any, value: Any, stamp: int) -> bool:
        try:
            return super()._add(key, value, stamp)
        except _OfRecord as error:
            self._put_aside(value, stamp, error)
            return True

    def _add_merging(self, key: Any, value: Any, stamp: int) -> bool:
        try:
            return super()._add_merging(key, value, stamp)
        except _OfRecord as error:
            self._put_aside(value, stamp, error)
            return True

    def _put_aside(self, value: Any, stamp: int, error: _OfRecord) -> None:
        self._letters.add(value, error.error, stamp if self._stamped else None, error.function)


class _OfRecord(Exception):
    """What the function raised is a matter of the record that is being added."""

    def __init__(self, error: Exception, function: str) -> None:
        super().__init__(error, function)
        self.error = error
        self.function = function


def _listed(assign: Callable[..., Any]) -> Callable[..., list[Any]]:
    """An assigner's method, with all windows of the record at once."""

    def assigned(*args: Any) -> list[Any]:
        try:
            return list(assign(*args))
        except Exception as error:
            raise _OfRecord(error, "assign_windows") from error

    return assigned


class _Unknown:
    """What a window holds whose result cannot be had, and why."""

    def __init__(self, held: Any, error: Exception) -> None:
        self.held = held
        self.error = error


class _GuardedFold:
    """A fold that says whose fault it is. It never merges."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self.merge = fold.merge
        self.method = fold.method

    def first(self, value: Any) -> Any:
        try:
            return self._fold.first(value)
        except Exception as error:
            raise _OfRecord(error, self.method) from error

    def add(self, accumulator: Any, value: Any) -> Any:
        try:
            return self._fold.add(accumulator, value)
        except Exception as error:
            raise _OfRecord(error, self.method) from error

    def result(self, accumulator: Any) -> Any:
        try:
            return self._fold.result(accumulator)
        except Exception as error:
            return _Unknown(accumulator, error)


class _Firing(NoRecord):
    """In place of a record: what the function was given of a window."""

    def __init__(self, key: Any, window: Any, contents: Sequence[Any]) -> None:
        self._key = key
        self._window = window
        self._contents = contents

    @property
    def given(self) -> Any:
        return [one.held if isinstance(one, _Unknown) else one for one in self._contents]

    def __repr__(self) -> str:
        return f"(no record: {self._window} of the key {self._key!r} fired, with {self.given!r})"


class _Emitter:
    """A `WindowEmitter` whose firings give all their results or none."""

    def __init__(self, emitter: PlainEmitter | FunctionEmitter, gathering: Gathering) -> None:
        self._results = emitter.results
        self._method = emitter.method
        self._gathering = gathering
        self.clear = emitter.clear
        self.flush = gathering.flush

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> None:
        firing = _Firing(key, window, contents)
        stamp = window.max_timestamp()
        unknown = contents[0] if contents and isinstance(contents[0], _Unknown) else None
        method = "get_result" if unknown is not None else self._method
        self._gathering.take(firing, stamp, method, self._given, key, window, contents)

    def more(self, rest: Iterator[Any], window: Any) -> None:
        raise AssertionError("a firing leaves nothing")

    @property
    def full(self) -> bool:
        return self._gathering.full

    def _given(self, key: Any, window: Any, contents: Sequence[Any]) -> Any:
        for one in contents:
            if isinstance(one, _Unknown):
                raise one.error
        return self._results(key, window, contents)
