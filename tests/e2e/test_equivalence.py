"""Every pipeline, every way (see strom.testing.equivalence)."""

from __future__ import annotations

from amounts import records, seeds
from strom.testing.backends import IN_MEMORY
from strom.testing.equivalence import Ways, assert_equivalent
from strom.testing.ways import resumed


def test_the_default_seeds_of_many_pipelines_are_all_combinations() -> None:
    """Of how a job goes on from another's state, where that was and is, and what their storages
    are. Pipelines differ in `mix`."""
    found = set()
    for ways in (Ways(mix=mix) for mix in range(16)):
        for seed in ways.seeds:
            before, after = (resumed(ways, seed, run, 2).state == IN_MEMORY for run in (1, 2))
            found.add((seed % 3, before, after, ways.in_files(seed)))
    assert len(found) == 3 * 2 * 2 * 2


def test_keyed_reduce() -> None:
    words = [f"w{i * i % 17}" for i in range(records(300))]

    def build(env):
        return (
            env.from_collection(words)
            .map(lambda w: (w, 1))
            .key_by(lambda p: p[0])
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )

    counts: dict[str, int] = {}
    expected = []
    for word in words:
        counts[word] = counts.get(word, 0) + 1
        expected.append((word, counts[word]))
    assert_equivalent(build, expected, Ways(seeds=seeds(20)))
