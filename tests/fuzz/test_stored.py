"""The fuzzer's checkpoints of files: what they found, and that they notice what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from strom.state.rocks.database import files
from strom.testing.fuzz.drawing import draw_case
from strom.testing.fuzz.limits import small_limits
from strom.testing.fuzz.operators import stored
from strom.testing.fuzz.running import Disagreement, run_case
from strom.testing.fuzz.stored import StoredSubtasks


@pytest.mark.parametrize("seed", [229, 5035])
def test_what_was_found(seed: int) -> None:
    """Keys of codes of decimals; keys of times with a zone, by `verify` as well."""
    run_case(draw_case(seed))


def test_a_checkpoint_that_shows_more_than_there_was_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries of RocksDB count though tables hold their keys."""
    monkeypatch.setattr(files, "shadowed", lambda *_: frozenset())
    assert next(wrong_seeds(range(48, 60)), None) is not None


def test_crashes_and_restores_of_all_kinds_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[Any] = set()
    restored, crash = StoredSubtasks._restored, StoredSubtasks.crash

    def watched(self: Any, subtask: int, parallelism: int) -> Any:
        databases = [one.database for part in self._manifest.subtasks for one in part.operators]
        found.add((self._state.backend, parallelism, any(databases)))
        return restored(self, subtask, parallelism)

    def crashed(self: Any) -> None:
        found.add("crash")
        crash(self)

    monkeypatch.setattr(StoredSubtasks, "_restored", watched)
    monkeypatch.setattr(StoredSubtasks, "crash", crashed)
    assert not list(wrong_seeds(range(60, 75)))
    assert "crash" in found
    starts = [one for one in found if one != "crash"]
    assert {backend for backend, *_ in starts} == {"memory", "rocksdb"}
    assert {parallelism for _, parallelism, _ in starts} == {1, 2, 3}
    assert {by_files for *_, by_files in starts} == {True, False}


def wrong_seeds(seeds: range) -> Iterator[int]:
    for seed in seeds:
        case = draw_case(seed)
        try:
            with small_limits(case.tight):
                stored(case)
        except (AssertionError, Disagreement):
            yield seed
