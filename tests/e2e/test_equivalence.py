"""Every pipeline, every way (see strom.testing.equivalence)."""

from __future__ import annotations

from strom.testing.equivalence import Ways, assert_equivalent


def test_keyed_reduce() -> None:
    words = [f"w{i * i % 17}" for i in range(300)]

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
    assert_equivalent(build, expected, Ways(seeds=range(10)))
