"""Count words, record by record: `python examples/word_count.py [--host local|ray] [file ...]`."""

import argparse
import re
from pathlib import Path

from strom import StreamExecutionEnvironment

TEXT = """To be, or not to be, that is the question:
Whether 'tis nobler in the mind to suffer
The slings and arrows of outrageous fortune,
Or to take arms against a sea of troubles
And by opposing end them. To die, to sleep,
No more; and by a sleep to say we end
The heart-ache and the thousand natural shocks
That flesh is heir to."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="local", choices=["local", "ray"])
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    lines = [line for file in options.files for line in file.read_text().splitlines()]

    env = StreamExecutionEnvironment.get_execution_environment(host=options.host)
    env.set_parallelism(options.parallelism)
    counts = (
        env.from_collection(lines or TEXT.splitlines())
        .flat_map(lambda line: re.findall(r"[a-z'-]+", line.lower()))
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
    )
    # Every occurrence updates its word's count; the last update of a word is its total.
    totals: dict[str, int] = {}
    with counts.execute_and_collect("word count") as updates:
        for word, n in updates:
            totals[word] = max(n, totals.get(word, 0))
    for word, n in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:20]:
        print(f"{n:6d} {word}")


if __name__ == "__main__":
    main()
