"""docs/cli.md says of every command what its help says. `make reference` writes that part of it
anew, by running this file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import strom
from strom.cli import answers
from strom.cli.main import app
from typer.main import get_command

DOCUMENT = Path(strom.__file__).parent / "docs" / "cli.md"
HEADING = "## All commands\n"
OWN_HELP = {"bench"}
"""What it takes is told by somebody else."""


def commands(group: Any = None, name: str = "strom") -> Iterator[tuple[str, Any]]:
    """(`strom list`, the command) for each, in the order of the help."""
    group = get_command(app) if group is None else group
    for word, command in group.commands.items():
        whole = f"{name} {word}"
        if hasattr(command, "commands"):
            yield from commands(command, whole)
        else:
            yield whole, command


def section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = [one.name.upper() if one.required else f"[{one.name.upper()}]" for one in arguments]
    takes = f"    {' '.join([name, *usage, *['[OPTIONS]'] * bool(options)])}"
    if name.removeprefix("strom ") in OWN_HELP:
        takes = f"    {name} BENCHMARK [OPTIONS]"
    said = [" ".join(part.split()) for part in command.help.split("\n\n")]
    rows = [f"| `{one.name.upper()}` | {one.help} |" for one in arguments]
    rows += [row(one) for one in options]
    table = ["| | |", "|---|---|", *rows] if rows else []
    parts = [f"### `{name}`", takes, *said, "\n".join(table)]
    return "\n\n".join(part for part in parts if part)


def row(option: Any) -> str:
    names = ", ".join(f"`{one}`" for one in (*option.opts, *option.secondary_opts))
    more = " May be given again." if option.multiple and "again" not in option.help else ""
    shown = option.default is not None and not isinstance(option.default, bool)
    default = f" Default: `{option.default}`." if shown else ""
    return f"| {names} | {option.help}{more}{default} |"


def reference() -> str:
    return "\n\n".join(section(*one) for one in commands()) + "\n"


def test_the_document_says_what_the_help_says() -> None:
    written = DOCUMENT.read_text().partition(HEADING)[2].strip().split("\n### ")
    expected = reference().strip().split("\n### ")
    assert [one for one in expected if one not in written] == [], "make reference"
    assert written == expected, "make reference"


def test_the_document_has_every_exit_code() -> None:
    text = DOCUMENT.read_text()
    codes = answers.FINE, answers.DIFFERENT, answers.USAGE, answers.BROKEN, answers.UNREAD
    for code in codes:
        assert f"\n| {code} | " in text


if __name__ == "__main__":
    head = DOCUMENT.read_text().partition(HEADING)[0]
    DOCUMENT.write_text(f"{head}{HEADING}\n{reference()}")
