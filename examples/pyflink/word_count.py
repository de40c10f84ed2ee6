"""How often each word comes, as it is read. Change `strom` to `pyflink`, and PyFlink runs it."""

from __future__ import annotations

from collections.abc import Iterator

from strom.common import Types
from strom.datastream import DataStream, StreamExecutionEnvironment

TEXT = [
    "to be or not to be that is the question",
    "whether tis nobler in the mind to suffer",
    "the slings and arrows of outrageous fortune",
    "or to take arms against a sea of troubles",
]
COUNT = Types.TUPLE([Types.STRING(), Types.INT()])


def split(line: str) -> Iterator[str]:
    yield from line.split()


def word_count(env: StreamExecutionEnvironment) -> DataStream:
    lines = env.from_collection(TEXT, Types.STRING())
    words = lines.flat_map(split, output_type=Types.STRING())
    ones = words.map(lambda word: (word, 1), output_type=COUNT)
    by_word = ones.key_by(lambda one: one[0], key_type=Types.STRING())
    return by_word.reduce(lambda left, right: (left[0], left[1] + right[1]))


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    word_count(env).print()
    env.execute("word count")


if __name__ == "__main__":
    main()
