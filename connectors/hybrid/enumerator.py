"""Hands out the splits of one source after the other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from ...api.connectors.base import EnumeratorContext, Source, SplitEnumerator
from ...core.errors import ConfigurationError
from .stages import HybridState, News, Records, Stage, StageSplit, check_same, plain


class HybridEnumerator(SplitEnumerator):
    """See `stages` for how it learns that a source is read."""

    def __init__(
        self, stages: Sequence[Stage], context: EnumeratorContext, restored: HybridState | None
    ) -> None:
        self._stages = stages
        self._context = context
        self._stage = 0
        self._made: dict[int, bytes] = {}
        """See `HybridState`."""
        if restored is None:
            first = stages[0].source
            assert isinstance(first, Source)
            self._source = first
            self._records = Records(plain(first.schema), first.upsert_key)
        else:
            self._check(restored)
            self._stage, self._made = restored.stage, dict(restored.made)
            self._source = self._known(restored.stage)
            self._records = restored.records
        state = None if restored is None else restored.state
        self._inner = self._source.create_enumerator(context, state)
        self._met: set[int] = set()
        """Subtasks that were told of this source in this attempt."""
        self._over: set[int] = set()
        """Subtasks that were told that it has nothing more for them."""
        self._read: set[int] = set()
        """Of `_over`, those that have asked since: they hold nothing of it."""

    def next_splits(self, subtask: int) -> Sequence[Any] | None:
        if subtask in self._over:
            self._read.add(subtask)
            if self._stage == len(self._stages) - 1:
                return None
            if len(self._read) < self._context.parallelism:
                return [self._news(subtask, pause=True)]
            self._switch()
        given = self._inner.next_splits(subtask)
        if given is None:
            self._over.add(subtask)
            return [self._news(subtask)]
        splits = [StageSplit(self._stage, split) for split in given]
        return [self._news(subtask, pause=not splits), *splits]

    def snapshot(self) -> HybridState:
        names = tuple(stage.name for stage in self._stages)
        made, reads = dict(self._made), tuple(stage.reads for stage in self._stages)
        return HybridState(self._stage, names, self._inner.snapshot(), self._records, made, reads)

    def close(self) -> None:
        self._inner.close()

    def _news(self, subtask: int, pause: bool = False) -> News:
        stage, over = self._stage, subtask in self._over
        if subtask in self._met:
            return News(stage, over=over, pause=pause)
        self._met.add(subtask)
        return News(stage, self._made.get(stage), self._records, over, pause)

    def _switch(self) -> None:
        """All readers have read all of this source."""
        number = self._stage + 1
        stage = self._stages[number]
        source = stage.source
        if not isinstance(source, Source):
            source = self._make(number, stage)
        check_same(
            self._records,
            Records(plain(source.schema), source.upsert_key),
            number,
            type(source).__name__,
        )
        following = source.create_enumerator(self._context, None)
        former, self._inner = self._inner, following
        self._stage, self._source = number, source
        self._met, self._over, self._read = set(), set(), set()
        former.close()

    def _make(self, number: int, stage: Stage) -> Source:
        from ...core import code_pickles

        assert not isinstance(stage.source, Source)
        source = stage.source(self._inner)
        if not isinstance(source, Source):
            raise ConfigurationError(
                f"HybridSource: the factory of source {number + 1} returned {source!r}, not a "
                "Source"
            )
        if stage.bounded and not source.bounded:
            raise ConfigurationError(
                f"HybridSource: the factory of source {number + 1}, which was said to be bounded, "
                f"made a {type(source).__name__} that never ends"
            )
        self._made[number] = code_pickles.dumps(source)
        return source

    def _known(self, number: int) -> Source:
        """One that was read before the restore."""
        if number in self._made:
            made: Source = pickle.loads(self._made[number])
            return made
        source = self._stages[number].source
        assert isinstance(source, Source)
        return source

    def _check(self, restored: HybridState) -> None:
        """The sources up to the one that was being read must be the same; others may come."""
        if not isinstance(restored, HybridState):
            raise ConfigurationError(
                "the checkpoint is of another source than a HybridSource: give this one another uid"
            )
        read = restored.names[: restored.stage + 1]
        now = tuple(stage.name for stage in self._stages)
        if now[: len(read)] != read:
            raise ConfigurationError(
                f"HybridSource: the checkpoint was taken while source {restored.stage + 1} of "
                f"{', '.join(restored.names)} was read, and now the sources are {', '.join(now)}: "
                "leave those that have been begun as they were, or give the source another uid"
            )
        begun = zip(read, restored.reads, self._stages, strict=False)
        for number, (name, before, stage) in enumerate(begun, start=1):
            if not set(before) <= set(stage.reads):
                raise ConfigurationError(
                    f"HybridSource: source {number} ({name}) read {', '.join(before)} when the "
                    f"checkpoint was taken, and now it reads {', '.join(stage.reads) or 'else'}: "
                    "leave those that have been begun as they were, or give the source another uid"
                )
