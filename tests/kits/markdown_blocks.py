"""Finds the fenced blocks of a Markdown file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")

LANGUAGES = ("", "text", "console", "mermaid", "json", "toml")
"""Blocks that are not run. Python blocks are `python`, or `python` and a tag."""

TAGS = ("", "ray", "spark", "kafka", "postgres")


class BadBlock(AssertionError):
    """A block is not well formed; the message names file and line."""


@dataclass(frozen=True)
class Block:
    """`line`: of the first line of `text` in its file, from 1. `output`: what it must print, if
    the document says so."""

    path: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str
    output: str | None = None

    @property
    def where(self) -> str:
        return f"{self.path.name}:{self.line}"

    @property
    def tag(self) -> str:
        """What a Python block needs: one of `TAGS`."""
        return self.words[0] if self.words else ""


def blocks_of(path: Path) -> list[Block]:
    """All fenced blocks in order; a `text output` block becomes the output of the one before it.

    Raises BadBlock for a block that is open, of an unknown language or mislabelled.
    """
    found: list[Block] = []
    for block in _fenced(path):
        _check(block)
        if block.words != ("output",):
            found.append(block)
        elif found and found[-1].language == "python" and found[-1].output is None:
            found[-1] = replace(found[-1], output=block.text)
        else:
            raise BadBlock(f"{block.where}: an output with no Python block before it")
    return found


def _fenced(path: Path) -> Iterator[Block]:
    start, indent, lines = 0, "", list[str]()
    info: list[str] | None = None
    """Of the block we are in, None between blocks."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if info is None and fence is not None:
            start, indent, info, lines = number + 1, fence["indent"], fence["info"].split(), []
        elif info is not None and fence is None:
            lines.append(line.removeprefix(indent))
        elif info is not None and fence is not None:
            if fence["info"].strip():
                raise BadBlock(
                    f"{path.name}:{number}: a block opens inside the one of line {start}"
                )
            language = info[0] if info else ""
            yield Block(path, start, language, tuple(info[1:]), "\n".join(lines))
            info = None
    if info is not None:
        raise BadBlock(f"{path.name}:{start}: the block is never closed")


def _check(block: Block) -> None:
    if block.language == "python":
        if len(block.words) > 1 or block.tag not in TAGS:
            raise BadBlock(f"{block.where}: a python block may be marked {' or '.join(TAGS[1:])}")
    elif block.language not in LANGUAGES:
        raise BadBlock(f"{block.where}: unknown language '{block.language}'")
    elif re.search(r"^(from|import) \w", block.text, re.MULTILINE):
        raise BadBlock(f"{block.where}: Python that is not marked as such would not be run")
