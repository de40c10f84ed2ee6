"""Commands, files and names in the documentation exist; what it calls missing does not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import strom
from markdown_blocks import blocks_of
from strom import DataStream, JobClient, KeyedStream, StreamExecutionEnvironment, WindowedStream
from strom.benchmarks.cli import parser
from strom.cli.main import app
from typer.main import get_command

ROOT = Path(strom.__file__).parent
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
THERE = re.compile(r"\([^)]*(is|are) there\)")
"""What a row of the table of missing things adds: "(`union` is there)"."""

PROGRAMS = {"run", "bench"}
"""What stands behind these is told by somebody else."""

TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(path: Path) -> list[str]:
    """Everything a reader might type: lines of console blocks, indented lines, inline code."""
    text = path.read_text()
    lines = [
        line for b in blocks_of(path) if b.language == "console" for line in b.text.split("\n")
    ]
    lines += re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE)
    lines += re.findall(r"`([^`\n]+)`", text)
    return [line.removeprefix("$ ").partition("#")[0].strip() for line in lines]


def commands(start: str) -> list[tuple[str, str]]:
    """(document, command) for each command that begins so."""
    return [(p.name, line) for p in DOCUMENTS for line in code_of(p) if line.startswith(start)]


def test_make_targets_exist() -> None:
    named = {(doc, word) for doc, line in commands("make ") for word in line.split()[1:2]}
    assert {target for _, target in named} >= {"demo", "test"}
    assert {(doc, target) for doc, target in named if target not in TARGETS} == set()


def test_benchmark_commands_parse() -> None:
    found = commands("python -m benchmarks") + commands(".venv/bin/python -m benchmarks")
    assert found
    for document, line in found:
        arguments = shlex.split(line.split("benchmarks", 1)[1])
        if not arguments or arguments[0].isupper() or "..." in arguments:
            continue
        try:
            parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{document}: {line}")


def test_commands_of_strom_exist() -> None:
    found = [one for one in commands("strom ") if re.match(r"strom [a-z-]", one[1])]
    assert len(found) > 50
    whole = get_command(app)
    for document, line in found:
        command, words = whole, line.replace("|", " | ").split()[1:]
        while words and hasattr(command, "commands") and not words[0].startswith(("-", ".")):
            assert words[0] in command.commands, f"{document}: {line}"
            command = command.commands[words.pop(0)]
        known = {one for param in command.params for one in (*param.opts, *param.secondary_opts)}
        if command.name in PROGRAMS:
            continue
        for word in re.findall(r"(?<!\S)--[a-z-]+", " ".join(words).partition(" -- ")[0]):
            assert word in known, f"{document}: {line}: there is no {word}"


def test_ray_jobs_are_submitted_as_ray_wants_it() -> None:
    found = commands("ray job submit")
    assert found
    for document, line in found:
        words = shlex.split(line)
        assert "--" in words, f"{document}: {line}: the entry point comes behind '--'"
        assert words[words.index("--") + 1] == "python", f"{document}: {line}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in anchors_of(linked), f"{path.name} links to {target}"


def anchors_of(path: Path) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_what_the_guide_calls_missing_is_missing() -> None:
    text = (ROOT / "docs" / "guide.md").read_text()
    table = text.split("What is not there:")[1]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 1
    names = {n for row in rows for n in re.findall(r"`(\w+)`", THERE.sub("", row))}
    faces = (strom, DataStream, KeyedStream, WindowedStream, StreamExecutionEnvironment, JobClient)
    assert {name for name in names for face in faces if hasattr(face, name)} == set()
